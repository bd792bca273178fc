// Step times of a phase as bars, with the median and the 5 – 95 % range below them.
import type { PhaseDetails } from "./data";
import { shape } from "./dom";
import { formatCount, formatPs } from "./format";

const WIDTH = 460, HEIGHT = 132, BASE = 106, TOP = 8;

export function drawHistogram(host: HTMLElement, details: PhaseDetails): void {
  const { edges, counts, beyond, longest } = details.distribution;
  const low = edges[0], span = Math.max(edges[edges.length - 1] - low, 1);
  const room = beyond ? WIDTH - 34 : WIDTH;
  const x = (ps: number) => (edges.length === 2 && edges[0] === edges[1] ? room / 2 : (Math.min(ps, low + span) - low) / span * room);
  const tallest = counts.reduce((a, b) => Math.max(a, b), beyond);
  const height = (count: number) => (count ? Math.max(count / tallest * (BASE - TOP), 1) : 0);
  const bar = (left: number, width: number, count: number, text: string, kind: string) =>
    shape("rect", { x: left, y: BASE - height(count), width: Math.max(width, 0.5), height: height(count), class: kind },
      shape("title", {}, text));
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "histogram", "aria-hidden": "true" });
  counts.forEach((count, i) => {
    const text = `${formatPs(edges[i])} – ${formatPs(edges[i + 1])}: ${formatCount(count)} steps`;
    const width = edges.length === 2 ? room : x(edges[i + 1]) - x(edges[i]) - 1;
    svg.append(bar(edges.length === 2 ? 0 : x(edges[i]), width, count, text, "column"));
  });
  if (beyond) {
    svg.append(bar(WIDTH - 22, 22, beyond, `beyond ${formatPs(edges[edges.length - 1])}, up to ${formatPs(longest)}: ${formatCount(beyond)} steps`, "column beyond"));
    svg.append(shape("text", { x: WIDTH, y: HEIGHT - 8, "text-anchor": "end" }, `to ${formatPs(longest)}`));
  }
  svg.append(shape("line", { x1: 0, x2: WIDTH, y1: BASE, y2: BASE, class: "axis-line" }));
  const [p05, middle, p95] = [details.p05, details.median, details.p95].map(x);
  svg.append(shape("line", { x1: p05, x2: p95, y1: BASE + 4, y2: BASE + 4, class: "range" }));
  svg.append(shape("line", { x1: middle, x2: middle, y1: TOP, y2: BASE + 8, class: "middle" }));
  const anchor = middle < 60 ? "start" : middle > room - 60 ? "end" : "middle";
  svg.append(shape("text", { x: middle, y: HEIGHT - 8, "text-anchor": anchor, class: "strong" }, `median ${formatPs(details.median)}`));
  if (middle > 130) svg.append(shape("text", { x: 0, y: HEIGHT - 8 }, formatPs(low)));
  if (!beyond && middle < WIDTH - 130) svg.append(shape("text", { x: WIDTH, y: HEIGHT - 8, "text-anchor": "end" }, formatPs(low + span)));
  host.append(svg);
}
