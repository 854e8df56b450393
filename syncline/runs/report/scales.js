// Scales, ticks and how numbers are written.
const TIMES = [['ns', 1e-9], ['us', 1e-6], ['ms', 1e-3], ['s', 1], ['min', 60], ['h', 3600], ['d', 86400]];
const SIZES = [['B', 1], ['kB', 1e3], ['MB', 1e6], ['GB', 1e9], ['TB', 1e12], ['PB', 1e15]];
const START = 0.08; // of a logarithmic axis: its linear beginning, from 0 to the first value

const short = value => {
  if (value === 0 || !isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(+value.toPrecision(4));
};
const inUnits = (value, units) => {
  if (value === 0) return `0 ${units === TIMES ? 's' : 'B'}`;
  const [name, size] = units.filter(([, one]) => Math.abs(value) >= one * 0.9995).pop() || units[0];
  return `${+(value / size).toPrecision(3)} ${name}`;
};
const written = {
  count: value => Math.round(value).toLocaleString('en'),
  seconds: value => inUnits(value, TIMES),
  bytes: value => inUnits(value, SIZES),
  number: short,
};

// A scale is 0 to 1 over [low, high]; a logarithmic one is linear from 0 to its first positive value.
function scaleOf([low, high], first) {
  const raw = first
    ? x => (x <= first ? (x / first) * START : START + (1 - START) * Math.log(x / first))
    : x => x;
  const back = first
    ? y => (y <= START ? (y / START) * first : first * Math.exp((y - START) / (1 - START)))
    : y => y;
  const from = raw(low), to = raw(high), width = to - from || 1;
  return { of: x => (raw(x) - from) / width, at: share => back(from + share * width), low, high, first };
}

function niceStep(width, most, bases = [1, 2, 5, 10]) {
  const power = 10 ** Math.floor(Math.log10(width / most));
  return power * (bases.find(base => width / (power * base) <= most) || 10);
}

function linearTicks(low, high, most, kind) {
  if (!(high > low)) return [[low, written[kind](low)]];
  const units = kind === 'seconds' ? TIMES : kind === 'bytes' ? SIZES : [['', 1]];
  const [name, size] = units.filter(([, one]) => high >= 2 * one).pop() || units[0];
  let step = niceStep((high - low) / size, most);
  if (kind === 'count') step = Math.max(1, step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), ticks = [];
  for (let n = Math.ceil(low / size / step - 1e-9); n * step * size <= high * (1 + 1e-9); n++) {
    const value = n * step || 0;
    const text = kind === 'count' ? written.count(value) : value ? `${value.toFixed(digits)}${name && ` ${name}`}` : '0';
    ticks.push([value * size, text]);
  }
  return ticks;
}

// Round values of each unit; the roundest first, as many as have room.
function logTicks(scale, width, kind) {
  const units = kind === 'seconds' ? TIMES : kind === 'bytes' ? SIZES : [['', 1]];
  const kept = scale.low <= 0 ? [[0, '0']] : [], gap = 58 / width;
  for (const bases of [[1], [3], [2, 5]]) {
    for (let unit = 0; unit < units.length; unit++) {
      const [name, size] = units[unit], end = unit + 1 < units.length ? units[unit + 1][1] : Infinity;
      for (let power = 1; power < 1e16 && power * size < end * 0.99; power *= 10) {
        for (const base of bases) {
          const value = base * power * size;
          if (value >= 0.99 * end || value < (scale.first || 0) || value < scale.low || value > scale.high) continue;
          if (kept.every(([other]) => Math.abs(scale.of(other) - scale.of(value)) >= gap)) {
            kept.push([value, name ? `${base * power} ${name}` : written.count(value)]);
          }
        }
      }
    }
    if (kept.length > 4) break;
  }
  return kept.sort((a, b) => a[0] - b[0]);
}
