// Timelines: who did what when. A lane is a worker, with the network below, or a stage.
const SPAN_KINDS = {
  compute: ['compute', 'computes'], encode: ['encode', 'encodes'], trigger: ['trigger', 'asks whether to send'],
  optimizer: ['optimizer', 'updates'],
  wait: ['wait', 'waits'], network: ['network', 'on the network'], forward: ['forward', 'forward'],
  backward: ['backward', 'backward'], weight: ['weight', 'weight gradient'], 'forward later': ['forward', 'forward, another chunk'],
  'backward later': ['backward', 'backward, another chunk'], 'weight later': ['weight', 'weight gradient, another chunk'],
};
const look = kind => (kind === 'wait' ? 'fill:none;stroke:var(--wait)'
  : `fill:var(--${SPAN_KINDS[kind][0]})${kind.endsWith('later') ? ';fill-opacity:.62' : ''}`);

function spanKey(kinds) {
  return [...new Set(kinds)].map(kind => {
    const swatch = draw('svg', { width: 14, height: 12, 'aria-hidden': 'true' });
    swatch.append(draw('rect', { x: 1, y: 1, width: 12, height: 10, style: look(kind) }));
    return make('li', {}, swatch, ` ${SPAN_KINDS[kind][1]}`);
  });
}

function spansChart(root, chart) {
  const key = make('ul', { class: 'key', 'aria-label': 'Colours' });
  if (chart.stacked) { // on one axis, so that lengths compare
    const last = Math.max(...chart.choices.map(one => one.from + 1e6 * one.tick));
    key.append(...spanKey(chart.choices.flatMap(one => one.kinds)));
    root.append(key, make('div', { class: 'stack' }, ...chart.choices.map(one => spansPlot(one, last).root)));
    return;
  }
  const place = make('div');
  const show = number => {
    key.replaceChildren(...spanKey(chart.choices[number].kinds));
    place.replaceChildren(spansPlot(chart.choices[number]).root);
  };
  if (chart.choices.length > 1) {
    const select = make('select', {}, ...chart.choices.map((one, at) => make('option', { value: at }, one.name)));
    select.value = chart.first;
    select.addEventListener('change', () => show(+select.value));
    root.append(make('label', { class: 'choice' }, 'Of ', select));
  }
  root.append(key, place);
  show(chart.first);
}

function spansPlot(one, last) {
  const wide = one.numbers.length > 0; // a pipeline: tasks with their micro-batches, no network below
  const row = wide ? 24 : one.kinds.includes('network') ? 36 : 26;
  const total = 1e6;
  const at = value => one.from + value * one.tick;
  const order = one.start.map((_, n) => n).sort((a, b) => one.start[a] - one.start[b]);
  return new Plot({
    title: one.name, told: one.told, kind: 'seconds', full: [last ? 0 : at(0), last || at(total)], first: 0, left: 78,
    label: `Timeline of ${one.name}, ${one.told}`,
    height: () => TOP + BOTTOM + row * one.lanes.length,
    paint: plot => {
      const [low, high] = plot.shown, { svg } = plot;
      one.lanes.forEach((lane, n) => {
        const y = TOP + row * n;
        if (n) svg.append(draw('line', { class: 'grid', x1: plot.left, x2: plot.left + plot.across, y1: y, y2: y }));
        svg.append(draw('text', { x: plot.left - 8, y: y + row / 2 + 4, 'text-anchor': 'end' }, lane));
      });
      for (const n of order) {
        const start = at(one.start[n]), end = at(one.start[n] + one.length[n]);
        if (end < low || start > high) continue;
        const x = Math.max(plot.x(Math.max(start, low)), plot.left);
        const width = Math.max(plot.x(Math.min(end, high)) - x, 0.6);
        const kind = one.kinds[one.kind[n]], below = kind === 'network' && !wide;
        const y = TOP + row * one.lane[n] + (below ? row - 12 : 3);
        const height = below ? 9 : wide ? row - 6 : row - (one.kinds.includes('network') ? 17 : 6);
        if (kind === 'wait') {
          svg.append(draw('path', { d: `M${px(x)} ${y + height / 2}h${px(width)}`, class: 'waits', 'data-span': n }));
          continue;
        }
        svg.append(draw('rect', { x: px(x), y, width: px(width), height, style: look(kind), 'data-span': n,
          ...(width > 4 ? { class: 'edged' } : {}) }));
        if (wide && width > 7 * one.numbers[n].length + 3) {
          svg.append(draw('text', { class: 'on', x: px(x + width / 2), y: y + height / 2 + 4, 'text-anchor': 'middle' },
            one.numbers[n]));
        }
      }
      plot.axis();
    },
    points: () => [...new Set(one.start)].sort((a, b) => a - b).map(at),
    read: (plot, value) => {
      const now = (value - one.from) / one.tick + 1e-6 * total * 0.01;
      const found = order.filter(n => one.start[n] <= now && now < one.start[n] + Math.max(one.length[n], 1))
        .sort((a, b) => one.lane[a] - one.lane[b]);
      const lines = found.slice(0, MOST_TOLD).map(n =>
        `${one.lanes[one.lane[n]]}: ${one.words[one.word[n]]} (${written.seconds(one.length[n] * one.tick)})`);
      if (found.length > MOST_TOLD) lines.push(`and ${found.length - MOST_TOLD} more`);
      const where = written.seconds(value);
      return { at: value, inside: [make('p', {}, where), ...lines.map(line => make('p', {}, line))],
        text: [where, ...lines].join('. ') };
    },
  });
}
