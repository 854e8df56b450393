// When is sent what: a lane per method, a bar at each step with a collective, the taller the more bytes.
function placementChart(root, chart) {
  const row = 34, most = Math.max(...chart.lanes.flatMap(lane => lane.bytes), 1);
  const tall = size => Math.max(3, (row - 6) * (1 + Math.log10(Math.max(size, 1e-9) / most) / 3));
  const plot = new Plot({
    title: `Steps 0 to ${chart.steps - 1}`, told: `of ${chart.all.toLocaleString('en')}`, kind: 'count',
    full: [-0.5, chart.steps - 0.5], first: 0, named: true,
    label: `In which steps ${chart.lanes.length} methods send`,
    height: () => TOP + BOTTOM + row * chart.lanes.length,
    paint: plot => {
      const [low, high] = plot.shown, width = Math.max(1.5, Math.min(14, plot.across / (high - low) - 1));
      chart.lanes.forEach((lane, n) => {
        const base = TOP + row * (n + 1) - 2;
        plot.svg.append(draw('line', { class: 'grid', x1: plot.left, x2: plot.left + plot.across, y1: base, y2: base }));
        plot.svg.append(draw('text', { x: plot.left - 8, y: base - row / 2 + 6, 'text-anchor': 'end' }, shortened(lane.name, plot.left)));
        lane.steps.forEach((step, k) => {
          if (step < low || step > high) return;
          const height = tall(lane.bytes[k]);
          plot.svg.append(draw('rect', { x: px(plot.x(step) - width / 2), y: px(base - height), width: px(width),
            height: px(height), style: `fill:var(--m${lane.style})` }));
        });
      });
      plot.axis();
    },
    points: () => Array.from({ length: chart.steps }, (_, step) => step),
    read: (plot, value) => {
      const step = Math.min(Math.max(Math.round(value), 0), chart.steps - 1);
      const lines = chart.lanes.map(lane => {
        const k = lane.steps.indexOf(step);
        return `${lane.name}: ${k < 0 ? 'nothing' : `${written.bytes(lane.bytes[k])}, ${chart.words[lane.words[k]]}`}`;
      });
      return { at: step, inside: [make('p', {}, `step ${step}`), ...lines.map(line => make('p', {}, line))],
        text: `step ${step}. ${lines.join('. ')}` };
    },
  });
  root.append(plot.root);
}

const shortened = (name, room) => {
  const letters = Math.floor((room - 10) / 6.6);
  return name.length <= letters ? name : `${name.slice(0, letters - 1)}…`;
};
