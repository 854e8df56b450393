// What all plots share: elements, axes, zooming by hand, by keys and by buttons.
const SVG = 'http://www.w3.org/2000/svg';
const LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 26;

function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside); // texts are appended as texts
  return made;
}
function draw(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const px = value => value.toFixed(1);

// A plot that can be zoomed along x. `paint(plot)` draws into plot.svg; `read(plot, x)` says what is at x.
class Plot {
  constructor({ title, told, label, full, kind, first, height, paint, points, read, left = LEFT, named = false }) {
    Object.assign(this, { full, kind, first, heightOf: height, paint, points, read, left, named, shown: [...full],
      cursor: null });
    this.area = make('div', { class: 'area', tabindex: '0', role: 'application', 'aria-roledescription': 'chart',
      'aria-label': label });
    this.status = make('p', { class: 'unseen', role: 'status' });
    const head = make('header', {}, make('div', {}, make('h4', {}, title), make('p', {}, told || '')));
    const buttons = make('div', { class: 'zoom' });
    for (const [sign, name, act] of [['+', 'Zoom in', () => this.zoom(0.5)], ['−', 'Zoom out', () => this.zoom(2)],
      ['⤢', 'Show all', () => this.reset()]]) {
      const button = make('button', { type: 'button', 'aria-label': `${name}: ${title}`, title: name }, sign);
      button.addEventListener('click', act);
      buttons.append(button);
    }
    head.append(buttons);
    this.root = make('div', { class: 'plot' }, head, this.area, this.status);
    this.box = make('div', { class: 'told', hidden: '' });
    this.area.addEventListener('keydown', event => this.key(event));
    this.area.addEventListener('blur', () => this.forget());
    this.area.addEventListener('pointerdown', event => this.press(event));
    this.area.addEventListener('pointermove', event => this.move(event));
    this.area.addEventListener('pointerup', event => this.lift(event));
    this.area.addEventListener('pointercancel', () => { this.from = null; this.forget(); });
    this.area.addEventListener('pointerleave', () => { if (document.activeElement !== this.area) this.forget(); });
    this.area.addEventListener('dblclick', () => this.reset());
    new ResizeObserver(() => this.resize()).observe(this.area);
  }

  resize() {
    const width = Math.round(this.area.clientWidth);
    if (width && width !== this.width) this.refresh(width);
  }

  refresh(width = this.width) {
    if (!width) return;
    this.width = width;
    this.height = this.heightOf(width);
    if (this.named) this.left = width < 560 ? 96 : 150;
    this.across = width - this.left - RIGHT;
    this.down = this.height - TOP - BOTTOM;
    this.scale = scaleOf(this.shown, this.first);
    this.svg = draw('svg', { viewBox: `0 0 ${width} ${this.height}`, width, height: this.height, 'aria-hidden': 'true' });
    this.paint(this);
    this.over = draw('g');
    this.svg.append(this.over);
    this.area.replaceChildren(this.svg, this.box);
    if (this.cursor !== null) this.point(this.cursor);
  }

  x(value) { return this.left + this.across * this.scale.of(value); }

  valueAt(event) {
    const box = this.svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) * (this.width / box.width) - this.left) / this.across;
    return this.scale.at(Math.min(Math.max(share, 0), 1));
  }

  axis(most = Math.max(2, Math.floor(this.across / 84))) {
    const ticks = this.first ? logTicks(this.scale, this.across, this.kind)
      : linearTicks(this.shown[0], this.shown[1], most, this.kind);
    const base = TOP + this.down, right = this.left + this.across;
    this.svg.append(draw('line', { class: 'axis', x1: this.left, x2: right, y1: base, y2: base }));
    for (const [value, text] of ticks) {
      const at = this.x(value), half = 3.4 * text.length;
      const anchor = at + half > this.width - 2 ? 'end' : at - half < 2 ? 'start' : 'middle';
      this.svg.append(draw('line', { class: 'axis', x1: px(at), x2: px(at), y1: base, y2: base + 4 }));
      this.svg.append(draw('text', { x: px(anchor === 'end' ? Math.min(at + half, this.width - 2) : at), y: base + 18,
        'text-anchor': anchor }, text));
    }
  }

  show(low, high) {
    const [from, to] = this.full, least = (to - from) * 1e-6;
    if (high - low < least) return;
    this.shown = [Math.max(from, low), Math.min(to, high)];
    this.refresh();
    this.say(`${written[this.kind](this.shown[0])} to ${written[this.kind](this.shown[1])}`);
  }

  zoom(by, around) {
    const here = this.scale.of(around === undefined ? (this.cursor ?? this.scale.at(0.5)) : around);
    const keep = Math.min(Math.max(here, 0), 1);
    const low = keep - keep * by, high = keep + (1 - keep) * by;
    this.show(this.scale.at(low), this.scale.at(high));
  }

  pan(by) {
    const [low, high] = this.shown, [from, to] = this.full, width = high - low;
    const moved = Math.min(Math.max(low + by * width, from), to - width);
    this.show(moved, moved + width);
  }

  reset() { this.show(...this.full); }

  key(event) {
    const act = {
      ArrowRight: () => (event.shiftKey ? this.pan(0.25) : this.step(1)),
      ArrowLeft: () => (event.shiftKey ? this.pan(-0.25) : this.step(-1)),
      PageDown: () => this.step(10), PageUp: () => this.step(-10),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity),
      '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.reset(),
      Escape: () => { this.forget(); this.reset(); },
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  step(by) {
    const points = this.points(this).filter(value => value >= this.shown[0] && value <= this.shown[1]);
    if (!points.length) return;
    let at = this.cursor === null ? (by > 0 ? -1 : points.length) : points.findIndex(value => value >= this.cursor);
    if (at < 0 && this.cursor !== null) at = points.length;
    at = Math.min(Math.max(at + by, 0), points.length - 1);
    this.point(points[at], true);
  }

  press(event) { if (event.pointerType !== 'touch' && event.button === 0) this.from = this.valueAt(event); }

  move(event) {
    const here = this.valueAt(event);
    this.point(here);
    if (this.from == null) return;
    const [low, high] = [this.from, here].sort((a, b) => a - b);
    this.over.append(draw('rect', { class: 'drag', x: px(this.x(low)), width: px(this.x(high) - this.x(low)), y: TOP,
      height: this.down }));
  }

  lift(event) {
    if (this.from == null) return;
    const [low, high] = [this.from, this.valueAt(event)].sort((a, b) => a - b);
    this.from = null;
    if (this.x(high) - this.x(low) > 6) this.show(low, high);
  }

  // Points at a value: a hair, and what `read` says there. `aloud`: also to those who do not see it.
  point(value, aloud = false) {
    this.cursor = value;
    this.over.replaceChildren();
    const told = this.read(this, value);
    if (!told) { this.box.hidden = true; return; }
    const at = this.x(told.at);
    this.over.append(draw('line', { class: 'hair', x1: px(at), x2: px(at), y1: TOP, y2: TOP + this.down }));
    for (const mark of told.marks || []) this.over.append(mark);
    this.box.replaceChildren(...told.inside);
    this.box.hidden = false;
    const left = at < this.width / 2;
    this.box.style.left = left ? `${px(at + 12)}px` : '';
    this.box.style.right = left ? '' : `${px(this.width - at + 12)}px`;
    if (aloud) this.say(told.text);
  }

  forget() {
    this.cursor = null;
    this.box.hidden = true;
    if (this.over) this.over.replaceChildren();
  }

  say(text) { this.status.textContent = text; }
}
