// The step that stands for a phase, event by event, and a button that saves it for a trace viewer.
import type { PageData, Trace } from "./data";
import { button, element, saveText } from "./dom";
import { formatPs } from "./format";
import { makeLane, pixelX, PS_PER_S } from "./lane";
import { inkOn } from "./theme";
import { makeTip } from "./tip";
import { steer, View } from "./view";

const ROW = 15, MOST_ROWS = 60;

export function drawTrace(host: HTMLElement, trace: Trace, data: PageData): void {
  const view = new View(trace.end / PS_PER_S);
  const rows = new Map<string, number>();
  const labels: string[] = [];
  const order = trace.start.map((_, i) => i).sort((a, b) => trace.track[a] - trace.track[b] || trace.depth[a] - trace.depth[b]);
  for (const i of order) {
    const key = `${trace.track[i]}/${trace.depth[i]}`;
    if (!rows.has(key)) {
      rows.set(key, rows.size);
      labels.push(trace.depth[i] === 0 || labels.length === 0 ? trace.tracks[trace.track[i]] : "");
    }
  }
  const rowOf = trace.start.map((_, i) => rows.get(`${trace.track[i]}/${trace.depth[i]}`)!);
  const height = Math.min(rows.size, MOST_ROWS) * ROW;
  const names = element("div", { class: "trace-tracks" });
  labels.slice(0, MOST_ROWS).forEach((label) => names.append(element("div", { title: label }, label)));
  const body = element("div", { class: "lane-body" });
  const drawing = element("div", { class: "trace", tabindex: "0", role: "group", "aria-label": `${trace.label}; + and - zoom, arrows move` });
  drawing.append(element("div", { class: "lane" }, names, body));
  const tools = element("div", { class: "controls" });
  for (const [action, label, sign] of [["in", "Zoom in", "+"], ["out", "Zoom out", "−"], ["all", "Show all", "all"]]) {
    tools.append(button(sign, label, () => view.move(action)));
  }
  tools.append(button("Save for Perfetto", "Save for Perfetto", () => saveText(`${trace.label.replace(/[^\w.-]+/g, "-")}.json`, chromeTrace(trace), "application/json")));
  host.append(tools, drawing);
  const tip = makeTip(drawing);
  let under = -1;
  const plot = makeLane(body, view, {
    label: trace.label, height, timeAxis: true, axisWidth: 18, rightRoom: 24, group: `trace ${trace.label}`,
    draw: (plot, context) => {
      const x = pixelX(plot), { left, top, width } = plot.bbox, row = ROW * devicePixelRatio;
      context.font = `${10.5 * devicePixelRatio}px system-ui, "DejaVu Sans", sans-serif`;
      context.textBaseline = "middle";
      context.textAlign = "left";
      for (let i = 0; i < trace.start.length; i++) {
        const from = Math.max(x(trace.start[i]), left), to = Math.min(x(trace.start[i] + trace.dur[i]), left + width);
        if (to < left || from > left + width || rowOf[i] >= MOST_ROWS) continue;
        const wide = Math.max(to - from, 0.75), at = top + rowOf[i] * row;
        const ground = data.category_colours[trace.categories[trace.category[i]]] ?? data.outside_colour;
        context.fillStyle = ground;
        context.globalAlpha = i === under ? 0.75 : 1;
        context.fillRect(from, at + 1, wide > 3 ? wide - 0.75 : wide, row - 2);
        if (wide > 44 * devicePixelRatio) label(context, trace.names[trace.name[i]], inkOn(ground), from, wide, at + row / 2);
      }
      context.globalAlpha = 1;
    },
    hover: (seconds, plot) => {
      const row = Math.floor((plot.cursor.top ?? -1) / ROW);
      const slack = (view.high - view.low) / plot.over.clientWidth * PS_PER_S * 2;
      const at = (seconds ?? -1) * PS_PER_S;
      under = seconds === null ? -1 : trace.start.findIndex((start, i) => rowOf[i] === row && start - slack <= at && at <= start + trace.dur[i] + slack);
      if (under < 0) { tip.hide(); return; }
      const box = plot.over.getBoundingClientRect();
      const category = trace.categories[trace.category[under]].replace("_", " ");
      tip.show([trace.names[trace.name[under]], `${formatPs(trace.dur[under])}, ${category}, ${formatPs(trace.start[under])} after the first`], box.left + (plot.cursor.left ?? 0), box.top + (plot.cursor.top ?? 0));
    },
  });
  steer(drawing, view, (event) => plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x"));
}

function label(context: CanvasRenderingContext2D, text: string, ink: string, from: number, wide: number, middle: number): void {
  context.save();
  context.beginPath();
  context.rect(from, middle - 20, wide - 4, 40);
  context.clip();
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillText(text, from + 4, middle + 0.5);
  context.restore();
}

// The format that chrome://tracing and Perfetto's viewer read: microseconds, one thread per track.
export function chromeTrace(trace: Trace): string {
  const events: object[] = trace.tracks.map((name, tid) => ({ ph: "M", pid: 1, tid, name: "thread_name", args: { name } }));
  events.push({ ph: "M", pid: 1, name: "process_name", args: { name: trace.label } });
  trace.start.forEach((start, i) => events.push({
    ph: "X", pid: 1, tid: trace.track[i], ts: start / 1e6, dur: trace.dur[i] / 1e6,
    name: trace.names[trace.name[i]], cat: trace.categories[trace.category[i]],
  }));
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}
