// Ops below the device's roof, on logarithmic axes.
import type { Peaks, Roofline } from "./data";
import { shape } from "./dom";
import { formatMetric, formatPs } from "./format";

const WIDTH = 620, HEIGHT = 300, LEFT = 78, RIGHT = 14, TOP = 12, BASE = 262;

export function drawRoofline(host: HTMLElement, points: Roofline, peaks: Peaks): void {
  const fastest = Math.max(...peaks.rates.map((rate) => rate.flop_per_s));
  const ridge = fastest / peaks.memory_bytes_per_s;
  const low = 10 ** Math.floor(Math.log10(Math.min(...points.flop_per_byte, ridge / 10)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...points.flop_per_byte, ridge * 10)));
  const bottom = 10 ** Math.floor(Math.log10(Math.min(...points.flop_per_s, fastest / 1000)));
  const top = fastest * 2;
  const x = (value: number) => LEFT + Math.log(value / low) / Math.log(high / low) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => BASE - Math.log(value / bottom) / Math.log(top / bottom) * (BASE - TOP);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "roofline", "aria-hidden": "true" });
  for (let power = Math.log10(low); power <= Math.log10(high) + 1e-9; power++) {
    const value = 10 ** power;
    svg.append(shape("line", { x1: x(value), x2: x(value), y1: TOP, y2: BASE, class: "grid" }));
    svg.append(shape("text", { x: x(value), y: BASE + 15, "text-anchor": "middle" }, String(Number(value.toPrecision(1)))));
  }
  for (let power = Math.log10(bottom); 10 ** power <= top; power++) {
    const value = 10 ** power;
    svg.append(shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    svg.append(shape("text", { x: LEFT - 6, y: y(value) + 3, "text-anchor": "end" }, formatMetric(value, "flop/s")));
  }
  svg.append(shape("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, "flop per byte"));
  const kinds = new Map<number, string[]>();
  for (const rate of peaks.rates) kinds.set(rate.flop_per_s, [...(kinds.get(rate.flop_per_s) ?? []), rate.kind]);
  let above = Infinity;
  for (const [rate, names] of kinds) {
    const knee = rate / peaks.memory_bytes_per_s;
    const start = Math.max(low, bottom / peaks.memory_bytes_per_s);
    svg.append(shape("path", { d: `M${x(start)} ${y(start * peaks.memory_bytes_per_s)}L${x(knee)} ${y(rate)}H${WIDTH - RIGHT}`, class: "roof" }));
    const at = y(rate) - 4;
    if (Math.abs(at - above) > 9) svg.append(shape("text", { x: WIDTH - RIGHT, y: at, "text-anchor": "end" }, `${names.join(", ")} ${formatMetric(rate, "flop/s")}`));
    above = at;
  }
  const most = Math.max(...points.self_ps);
  points.op.forEach((op, i) => {
    const radius = 2.5 + 7 * Math.sqrt(points.self_ps[i] / most);
    const text = `${op}: ${formatMetric(points.flop_per_s[i], "flop/s")} at ${Number(points.flop_per_byte[i].toPrecision(3))} flop per byte, ${formatPs(points.self_ps[i])}`;
    svg.append(shape("circle", { cx: x(points.flop_per_byte[i]), cy: y(Math.min(points.flop_per_s[i], top)), r: radius, class: "point" }, shape("title", {}, text)));
  });
  host.append(svg);
}
