// Losses: a panel for each thing that they are drawn against, and one legend.
const MOST_TOLD = 10;
const MARKS = 8;

function sample(style, dash) {
  const made = draw('svg', { width: 26, height: 10, viewBox: '0 0 26 10', 'aria-hidden': 'true' });
  made.append(draw('line', { x1: 1, x2: 25, y1: 5, y2: 5, style: `stroke:var(--m${style})`, 'stroke-width': 3,
    'stroke-dasharray': dash }));
  return made;
}

function lossName(one) {
  if (one.diverged !== null) return `${one.name} (diverged)`;
  return one.lost ? `${one.name} (${one.lost} of ${one.seeds} diverged)` : one.name;
}

function linesChart(root, chart, styles) {
  const on = chart.series.map(() => true);
  const plots = chart.panels.map(panel => linesPlot(chart, panel, on, styles));
  const legend = make('ul', { class: 'legend', 'aria-label': 'Lines' });
  chart.series.forEach((one, number) => {
    const button = make('button', { type: 'button', 'aria-pressed': 'true' });
    button.append(sample(one.style, styles[one.style].dash), make('span', {}, lossName(one)));
    button.addEventListener('click', () => {
      on[number] = !on[number];
      button.setAttribute('aria-pressed', String(on[number]));
      plots.forEach(plot => plot.refresh());
    });
    legend.append(make('li', {}, button));
  });
  root.append(legend, make('div', { class: 'panels' }, ...plots.map(plot => plot.root)));
}

function linesPlot(chart, panel, on, styles) {
  const lines = chart.series.map(one => ({
    ...one, xs: chart.columns[one.x[panel.x]] || [], ys: chart.columns[one.y],
    lows: chart.columns[one.low], highs: chart.columns[one.high],
  }));
  const ends = lines.map(one => one.xs[one.xs.length - 1] ?? 0);
  const first = panel.log ? Math.min(...lines.flatMap(one => one.xs.filter(x => x > 0).slice(0, 1))) : 0;
  const shown = () => lines.filter((one, number) => on[number] && one.xs.length);
  const [low, high] = chart.limits;
  return new Plot({
    title: panel.title, told: panel.told, kind: panel.kind, full: [0, Math.max(...ends) || 1],
    first: isFinite(first) ? first : 0,
    label: `${chart.label} against ${panel.title.toLowerCase()}, ${lines.length} lines`,
    height: width => Math.round(Math.min(Math.max(width * 0.62, 220), 340)),
    paint: plot => paintLines(plot, shown(), chart, styles),
    points: () => [...new Set(shown().flatMap(one => one.xs))].sort((a, b) => a - b),
    read: (plot, value) => {
      const all = shown().map(one => {
        const at = nearest(one.xs, value, plot.scale);
        return { one, x: one.xs[at], y: one.ys[at], at };
      }).filter(({ y }) => y !== undefined);
      if (!all.length) return null;
      const to = all.reduce((best, each) => (Math.abs(plot.x(each.x) - plot.x(value)) < Math.abs(plot.x(best.x) - plot.x(value)) ? each : best)).x;
      // A line that has ended long before, or has no point near, is not told.
      const near = all.filter(({ one, x }) => Math.abs(plot.x(x) - plot.x(to)) < 24 || (one.xs[0] < to && to < one.xs[one.xs.length - 1]))
        .map(each => ({ ...each, y: between(each.one, to) ?? each.y })).sort((a, b) => a.y - b.y);
      const told = near.slice(0, MOST_TOLD);
      const body = make('tbody');
      for (const { one, y } of told) {
        body.append(make('tr', {}, make('td', {}, sampled(one, styles), ` ${one.name}`), make('td', { class: 'number' }, short(y))));
      }
      const more = near.length - told.length;
      const where = written[panel.kind](to);
      return {
        at: to,
        inside: [make('p', {}, where), make('table', {}, body), ...(more > 0 ? [make('p', {}, `and ${more} more`)] : [])],
        marks: near.filter(({ y }) => y >= low && y <= high).map(({ one, y }) => draw('circle', {
          cx: px(plot.x(to)), cy: px(plot.y(y)), r: 4, style: `fill:var(--m${one.style});stroke:var(--ground)` })),
        text: `${where}: ${told.map(({ one, y }) => `${one.name} ${short(y)}`).join(', ')}`,
      };
    },
  });
}

const sampled = (one, styles) => sample(one.style, styles[one.style].dash);

function nearest(xs, value, scale) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(scale.of(xs[low]) - scale.of(value)) <= Math.abs(scale.of(xs[high]) - scale.of(value)) ? low : high;
}

// The loss at x on the straight line between two evaluations; nothing beyond the ends.
function between({ xs, ys }, x) {
  const after = xs.findIndex(one => one >= x);
  if (after < 0 || x < xs[0]) return undefined;
  if (xs[after] === x || after === 0) return ys[after];
  const share = (x - xs[after - 1]) / (xs[after] - xs[after - 1]);
  return ys[after - 1] + share * (ys[after] - ys[after - 1]);
}

function paintLines(plot, lines, chart, styles) {
  const [low, high] = chart.limits, { svg } = plot, right = LEFT + plot.across;
  plot.y = value => TOP + plot.down * (1 - (value - low) / (high - low));
  for (const [value, text] of linearTicks(low, high, 5, 'number')) {
    const at = px(plot.y(value));
    svg.append(draw('line', { class: 'grid', x1: LEFT, x2: right, y1: at, y2: at }));
    svg.append(draw('text', { x: LEFT - 6, y: +at + 4, 'text-anchor': 'end' }, text));
  }
  const clip = `clip-${paintLines.count = (paintLines.count || 0) + 1}`;
  const cut = draw('clipPath', { id: clip });
  cut.append(draw('rect', { x: LEFT, y: TOP, width: plot.across, height: plot.down }));
  const inside = draw('g', { 'clip-path': `url(#${clip})` });
  svg.append(cut, inside);
  if (chart.target !== null && chart.target > low && chart.target < high) {
    const at = px(plot.y(chart.target));
    svg.append(draw('line', { class: 'target', x1: LEFT, x2: right, y1: at, y2: at }));
    svg.append(draw('text', { x: LEFT + 4, y: +at + 14 }, `target ${short(chart.target)}`));
  }
  const path = (xs, ys) => xs.map((x, at) => `${px(plot.x(x))},${px(plot.y(ys[at]))}`);
  for (const one of lines) {
    if (!one.lows || one.seeds < 2) continue;
    const points = [...path(one.xs, one.highs), ...path(one.xs, one.lows).reverse()].join(' ');
    inside.append(draw('polygon', { class: 'range', points, style: `fill:var(--m${one.style})` }));
  }
  for (const one of lines) {
    inside.append(draw('polyline', { class: 'line', points: path(one.xs, one.ys).join(' '),
      style: `stroke:var(--m${one.style})`, 'stroke-dasharray': styles[one.style].dash, 'data-line': one.name }));
    if (one.diverged !== null && one.xs.length) {
      const at = one.xs.length - 1, x = plot.x(one.xs[at]), y = Math.max(plot.y(one.ys[at]), TOP + 5);
      svg.append(draw('path', { d: `M${px(x - 5)} ${px(y - 5)}l10 10m0 -10l-10 10`, style: `stroke:var(--m${one.style})`,
        'stroke-width': 2 }));
    }
  }
  plot.axis();
}
