// Numbers as people read them; the same rules as src/phasepoint/core/units.py.

const PS = { ns: 1e3, us: 1e6, ms: 1e9, s: 1e12, min: 60e12, h: 3600e12, d: 86400e12 };
const TIMES: [number, number, string][] = [
  [PS.d, PS.d, "d"], [PS.h, PS.h, "h"], [2 * PS.min, PS.min, "min"], [PS.s, PS.s, "s"],
  [PS.ms, PS.ms, "ms"], [PS.us, PS.us, "µs"], [PS.ns, PS.ns, "ns"],
];

function threeFigures(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

export function formatPs(ps: number): string {
  const size = Math.abs(ps);
  for (const [least, unit, name] of TIMES) if (size >= least) return `${threeFigures(ps / unit)} ${name}`;
  return `${threeFigures(ps)} ps`;
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024 || unit === "TiB") return unit === "B" ? `${value.toFixed(0)} B` : `${threeFigures(value)} ${unit}`;
    value /= 1024;
  }
  return "";
}

export function formatRatio(ratio: number): string {
  const percent = 100 * ratio;
  return `${percent.toFixed(Math.abs(percent) < 99.95 ? 1 : 0)} %`;
}

export function formatCount(count: number): string {
  return Math.round(count).toLocaleString("en-US");
}

export function formatMetric(value: number, unit: string): string {
  for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(value) >= size) return `${threeFigures(value / size)} ${prefix}${unit}`;
  }
  return `${value >= 1 || value === 0 ? threeFigures(value) : value.toPrecision(2)} ${unit}`;
}

// A label on a time axis: as many figures as the distance between labels needs.
export function formatTick(seconds: number, step: number): string {
  const [size, unit] = step >= 86400 ? [86400, "d"] : step >= 3600 ? [3600, "h"] : step >= 60 ? [60, "min"] :
    step >= 0.1 || seconds === 0 ? [1, "s"] : step >= 1e-4 ? [1e-3, "ms"] : step >= 1e-7 ? [1e-6, "µs"] : [1e-9, "ns"];
  return `${Number((seconds / size).toPrecision(9))} ${unit}`;
}
