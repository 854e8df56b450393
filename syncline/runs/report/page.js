// The page: its charts, its theme, its way onto paper.
const told = JSON.parse(document.getElementById('data').textContent);
const KINDS = { lines: linesChart, spans: spansChart, placement: placementChart };
for (const root of document.querySelectorAll('[data-chart]')) {
  const chart = told.charts[root.dataset.chart];
  KINDS[chart.kind](root, chart, told.styles);
}
const theme = document.getElementById('theme');
theme.hidden = false;
theme.addEventListener('click', () => {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  dataset.theme = dark ? 'light' : 'dark';
});
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(one => { one.open = true; }));
