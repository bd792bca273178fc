// The run over time: phases, step time, waiting for input, memory and counters, what was captured, written, not seen.
import uPlot from "uplot";
import type { Machine, Marks, PageData, Series, Strip, Timeline } from "./data";
import { button, element } from "./dom";
import { formatBytes, formatCount, formatPs, formatRatio } from "./format";
import { makeLane, pixelX, PS_PER_S } from "./lane";
import { colour } from "./theme";
import { makeTip } from "./tip";
import { steer, View } from "./view";

const GROUP = "run";
const LOG_FROM = 8; // a range of values wider than this shows more on a logarithmic axis
const BUTTONS = [["in", "Zoom in", "+"], ["out", "Zoom out", "−"], ["left", "Earlier", "←"], ["right", "Later", "→"], ["all", "Show all", "all"]];

type Hover = (seconds: number | null, plot: uPlot) => void;

export function drawTimeline(root: HTMLElement, data: PageData): View {
  const view = new View(data.end / PS_PER_S);
  const hover = makeHover(root, view, data);
  const timeline = data.timeline;
  const colours = new Map<number | null, string>(data.phases.map((phase) => [phase.id, phase.colour]));
  stripLane(addLane(root, "phases"), view, data.strip, (id) => colours.get(id) ?? data.outside_colour, hover);
  if (timeline) {
    if (timeline.bins.start.length) stepLane(addLane(root, "step time"), view, timeline, (id) => colours.get(id) ?? data.outside_colour, hover);
    if (timeline.bins.input_share.some((share) => share)) waitLane(addLane(root, "input wait"), view, timeline, hover);
    if (timeline.machine) machineLanes(root, view, timeline.machine, data.slower_colour, hover);
    for (const series of timeline.series) seriesLane(addLane(root, series.name), view, series, hover);
    for (const [name, marks] of Object.entries(timeline.marks)) marksLane(addLane(root, name), view, name, marks, hover);
  }
  makeLane(addLane(root, ""), view, { label: "time", height: 2, timeAxis: true, group: GROUP });
  const controls = document.querySelector("#timeline-controls");
  for (const [action, label, sign] of BUTTONS) {
    const node = button(sign, label, () => view.move(action));
    node.dataset.zoom = action;
    controls?.append(node);
  }
  root.tabIndex = 0;
  steer(root, view, (event) => timeAt(root, view, event));
  const tell = (low: number, high: number) => { root.dataset.from = String(low); root.dataset.to = String(high); };
  view.follow(tell);
  tell(view.low, view.high);
  return view;
}

export function addLane(root: HTMLElement, label: string): HTMLElement {
  const body = element("div", { class: "lane-body" });
  root.append(element("div", { class: "lane" }, element("div", { class: "lane-label" }, label), body));
  return body;
}

function timeAt(root: HTMLElement, view: View, event: MouseEvent): number {
  const box = (root.querySelector(".u-over") ?? root).getBoundingClientRect();
  return view.low + (event.clientX - box.left) / box.width * (view.high - view.low);
}

export function stripLane(host: HTMLElement, view: View, strip: Strip, colourOf: (id: number | null) => string, hover?: Hover): void {
  makeLane(host, view, {
    label: "phases", height: 26, group: GROUP, hover,
    draw: (plot, context) => {
      const x = pixelX(plot), { left, width, top, height } = plot.bbox;
      for (let i = 0; i < strip.start.length; i++) {
        const from = x(strip.start[i]), to = x(strip.start[i] + strip.dur[i]);
        if (to < left || from > left + width) continue;
        context.globalAlpha = strip.phase[i] === null ? 0.4 : 1;
        context.fillStyle = colourOf(strip.phase[i]);
        context.fillRect(from, top, Math.max(to - from, 0.75), height);
      }
      context.globalAlpha = 1;
    },
  });
}

function stepLane(host: HTMLElement, view: View, timeline: Timeline, colourOf: (id: number | null) => string, hover: Hover): void {
  const { bins, points } = timeline;
  const smallest = Math.min(...bins.p05), largest = Math.max(...bins.max);
  const log = smallest > 0 && largest / smallest > LOG_FROM;
  const stepped = uPlot.paths.stepped!({ align: 1 });
  const at = bins.start.map((ps) => ps / PS_PER_S);
  const line = (stroke: () => string, width: number): uPlot.Series => ({ stroke, width, paths: stepped, points: { show: false } });
  const banded = !timeline.all_steps;
  makeLane(host, view, {
    label: "step time", height: 150, group: GROUP, hover,
    y: { range: log ? [smallest * 0.8, largest * 1.25] : [0, largest * 1.12], log, format: formatPs, ticks: ticks(log ? smallest * 0.8 : 0, largest * 1.25, log) },
    data: banded ? [at, bins.p05, bins.p95, bins.median] as uPlot.AlignedData : undefined,
    series: banded ? [line(() => "transparent", 0), line(() => "transparent", 0), line(() => colour("band"), 1.5)] : undefined,
    bands: banded ? [{ series: [2, 1], fill: () => colour("band-fill") } as unknown as uPlot.Band] : undefined,
    draw: (plot, context) => {
      const x = pixelX(plot), { left, width } = plot.bbox;
      const size = 1.4 * devicePixelRatio;
      let last: string | null = null;
      for (let i = 0; i < points.at.length; i++) {
        const px = x(points.at[i]);
        if (px < left - size || px > left + width + size) continue;
        const ink = colourOf(points.phase[i]);
        if (ink !== last) context.fillStyle = last = ink;
        context.fillRect(px - size, plot.valToPos(points.dur[i], "y", true) - size, 2 * size, 2 * size);
      }
    },
  });
}

// Round values on an axis, few enough for a lane; a logarithmic axis has powers of ten, or 1, 2, 5 where these are few.
function ticks(low: number, high: number, log: boolean): number[] {
  const found: number[] = [];
  if (log) {
    const decades = Math.log10(high / low);
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const factor of decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    }
    return found;
  }
  const rough = 10 ** Math.floor(Math.log10((high - low) / 4));
  const step = [1, 2, 5, 10].map((m) => m * rough).find((s) => (high - low) / s <= 5) ?? rough;
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

function waitLane(host: HTMLElement, view: View, timeline: Timeline, hover: Hover): void {
  const { bins } = timeline;
  makeLane(host, view, {
    label: "input wait", height: 44, group: GROUP, hover,
    y: { range: [0, 1], format: formatRatioShort, ticks: [0, 0.5, 1] },
    data: steppedData(bins, bins.input_share),
    series: [steppedArea(() => colour("accent"), () => colour("accent-fill"))],
  });
}

// Values of stretches of time as steps: where a stretch ends before the next one begins, nothing is known.
function steppedData(stretches: { start: number[]; end: number[] }, ...values: (number | null)[][]): uPlot.AlignedData {
  const at: number[] = [], columns: (number | null)[][] = values.map(() => []);
  stretches.start.forEach((start, i) => {
    at.push(start / PS_PER_S);
    columns.forEach((column, c) => column.push(values[c][i]));
    const next = stretches.start[i + 1] ?? Infinity;
    if (stretches.end[i] < next) { at.push(stretches.end[i] / PS_PER_S); columns.forEach((column) => column.push(null)); }
  });
  return [at, ...columns] as uPlot.AlignedData;
}

const steppedArea = (stroke: () => string, fill?: () => string): uPlot.Series =>
  ({ stroke, fill, width: 1, paths: uPlot.paths.stepped!({ align: 1 }), points: { show: false } });

// What of its threads' time the job waited for cores, and beside it the speed of a core where that was looked at.
function machineLanes(root: HTMLElement, view: View, machine: Machine, ink: string, hover: Hover): void {
  const { waiting, crowded, held, speed } = machine;
  const isHeld = held.some(Boolean);
  if (waiting.length || crowded.length) {
    const parts = [
      { text: "share of the job's threads' time spent waiting for a core", values: waiting, mark: "var(--band)", stroke: () => colour("band"), fill: () => colour("band-fill") },
      { text: "of that, while other programs had the cores", values: isHeld ? crowded.map((part, i) => add(part, held[i])) : crowded, mark: ink, stroke: () => ink, fill: () => `${ink}99` },
      { text: "of that, while a limit on the job's CPU time held them", values: isHeld ? held : [], mark: "var(--accent)", stroke: () => colour("accent"), fill: () => colour("accent") },
    ];
    const known = parts.filter((part) => part.values.length);
    const host = addLane(root, "machine");
    host.append(key(known.map(({ text, mark }) => [text, mark])));
    makeLane(host, view, {
      label: "machine", height: 64, group: GROUP, hover,
      y: { range: [0, 1], format: formatRatioShort, ticks: [0, 0.5, 1] },
      data: steppedData(machine, ...known.map((part) => part.values)),
      series: known.map(({ stroke, fill }) => steppedArea(stroke, fill)),
    });
  }
  if (speed.length) {
    const host = addLane(root, "core speed");
    makeLane(host, view, {
      label: "core speed", height: 40, group: GROUP, hover,
      y: { range: [0, 1.1], format: formatRatioShort, ticks: [0, 0.5, 1] },
      data: steppedData(machine, speed),
      series: [steppedArea(() => colour("accent"))],
    });
  }
}

function add(part: number | null, more: number | null): number | null {
  return part == null ? more : part + (more ?? 0);
}

function key(parts: [string, string][]): HTMLElement {
  return element("div", { class: "lane-key" }, ...parts.map(([text, ink]) => {
    const mark = element("span", { class: "lane-mark" });
    mark.style.background = ink;
    return element("span", {}, mark, text);
  }));
}

const formatRatioShort = (ratio: number) => `${Math.round(100 * ratio)} %`;

function seriesLane(host: HTMLElement, view: View, series: Series, hover: Hover): void {
  const largest = series.values.reduce((a, b) => Math.max(a, b), 0) || 1;
  const format = (value: number) => (series.unit === "bytes" ? formatBytes(value) : `${Number(value.toPrecision(4))} ${series.unit}`);
  const step = series.unit === "bytes" ? 2 ** Math.ceil(Math.log2(largest * 1.1 / 2)) : 0;
  makeLane(host, view, {
    label: series.name, height: 48, group: GROUP, hover,
    y: { range: [0, largest * 1.1], format, ticks: step ? [0, step, 2 * step].filter((v) => v <= largest * 1.1) : ticks(0, largest * 1.1, false).filter((_, i) => i % 2 === 0) },
    data: [series.at.map((ps) => ps / PS_PER_S), series.values],
    series: [{ stroke: () => colour("accent"), width: 1.25, points: { show: series.at.length < 60, size: 3 } }],
  });
}

function marksLane(host: HTMLElement, view: View, name: string, marks: Marks, hover: Hover): void {
  makeLane(host, view, {
    label: name, height: 14, group: GROUP, hover,
    draw: (plot, context) => {
      const x = pixelX(plot), { top, height } = plot.bbox;
      context.fillStyle = colour(name === "gaps" ? "dim" : "accent");
      for (let i = 0; i < marks.start.length; i++) {
        const from = x(marks.start[i]), to = x(marks.start[i] + marks.dur[i]);
        if (marks.gone) context.fillStyle = colour(marks.gone[i] ? "band" : "accent");
        context.globalAlpha = 0.45;
        context.fillRect(from, top + height * 0.3, to - from, height * 0.4);
        context.globalAlpha = 1;
        // What is gone is a stump of the mark that it was.
        const cut = marks.gone?.[i] ? height * 0.55 : 0;
        context.fillRect(from, top + 1 + cut, Math.max(devicePixelRatio, 1), height - 2 - cut);
      }
    },
  });
}

function makeHover(root: HTMLElement, view: View, data: PageData): Hover {
  const tip = makeTip(root);
  return (seconds, plot) => {
    if (seconds === null) { tip.hide(); return; }
    const slack = (view.high - view.low) * 3 / Math.max(plot.over.clientWidth, 1) * PS_PER_S;
    const lines = textsAt(data, seconds * PS_PER_S, slack);
    const box = plot.over.getBoundingClientRect();
    tip.show(lines, box.left + (plot.cursor.left ?? 0), box.top + (plot.cursor.top ?? 0));
  };
}

function textsAt(data: PageData, at: number, slack: number): string[] {
  const lines: string[] = [];
  const strip = data.strip, i = rangeAt(strip.start, strip.dur, at, 0);
  if (i >= 0) lines.push(stretchText(strip, i));
  const timeline = data.timeline;
  if (!timeline) return lines;
  const points = timeline.points, p = nearest(points.at, at);
  if (p >= 0 && Math.abs(points.at[p] - at) <= 2 * slack) {
    const wait = points.input[p] ? `, ${formatPs(points.input[p])} of it waiting for input` : "";
    lines.push(`step ${formatCount(points.step[p])}: ${formatPs(points.dur[p])}${wait}`);
  }
  const bins = timeline.bins, b = nearest(bins.start, at, true);
  if (b >= 0 && at < bins.end[b] && bins.n[b] > 1) lines.push(binText(bins, b));
  if (timeline.machine) lines.push(...machineText(timeline.machine, at));
  for (const marks of Object.values(timeline.marks)) {
    const m = rangeAt(marks.start, marks.dur, at, slack);
    if (m >= 0) lines.push(marks.text[m]);
  }
  return lines;
}

function stretchText(strip: Strip, i: number): string {
  const steps = strip.first[i] === null ? "" : `, steps ${formatCount(strip.first[i]!)} – ${formatCount(strip.last[i]!)}`;
  const merged = strip.merged[i] > 1 ? ` and ${strip.merged[i] - 1} short stretches` : "";
  return `${strip.name[i]}${merged}: ${formatPs(strip.dur[i])}${steps}`;
}

function machineText(machine: Machine, at: number): string[] {
  const i = nearest(machine.start, at, true);
  if (i < 0 || at >= machine.end[i]) return [];
  const waiting = machine.waiting[i], crowded = machine.crowded[i], held = machine.held[i], speed = machine.speed[i];
  const texts = [
    waiting == null ? "" : `the job's threads waited for a core ${formatRatio(waiting)} of their time`,
    crowded == null ? "" : `${formatRatio(crowded)} while other programs had the cores`,
    held ? `${formatRatio(held)} while a limit on its CPU time held them` : "",
    speed == null ? "" : `a core ran at ${formatRatio(speed)} of its speed`,
  ].filter(Boolean);
  return texts.length ? [`machine: ${texts.join("; ")}`] : [];
}

function binText(bins: Timeline["bins"], i: number): string {
  const share = bins.input_share[i];
  const wait = share === null ? "" : `, ${formatRatio(share)} waiting for input`;
  return `${formatCount(bins.n[i])} steps from ${formatCount(bins.first[i])}: median ${formatPs(bins.median[i])}, ` +
    `5 – 95 % ${formatPs(bins.p05[i])} – ${formatPs(bins.p95[i])}, slowest ${formatPs(bins.max[i])}${wait}`;
}

// Index of the value nearest to `at` in a rising list, or of the last one not above it; -1 where there is none.
function nearest(values: number[], at: number, below = false): number {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= at) low = middle + 1; else high = middle;
  }
  if (below || low === values.length) return low - 1;
  return low > 0 && at - values[low - 1] < values[low] - at ? low - 1 : low;
}

function rangeAt(start: number[], dur: number[], at: number, slack: number): number {
  for (let i = nearest(start, at + slack, true); i >= 0 && i >= 0; i--) {
    if (at <= start[i] + dur[i] + slack) return i;
    if (start[i] + dur[i] < at - slack && slack === 0) return -1;
    if (i < nearest(start, at, true) - 8) return -1;
  }
  return -1;
}
