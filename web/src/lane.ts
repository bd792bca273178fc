// One lane: a plot over a shared stretch of time. uPlot keeps scales, axes, cursor, dragging and pixels right.
import uPlot from "uplot";
import { formatTick } from "./format";
import { colour, onTheme } from "./theme";
import type { View } from "./view";

export const PS_PER_S = 1e12;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const STEPS = [
  ...Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((m) => Number(`${m}e${i - 10}`))).flat(),
  60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000,
].filter((step) => step <= 50 || step >= 60).sort((a, b) => a - b);

export interface LaneOptions {
  label: string;
  height: number;
  axisWidth?: number;
  rightRoom?: number;
  data?: uPlot.AlignedData;
  series?: uPlot.Series[];
  bands?: uPlot.Band[];
  y?: { range: [number, number]; log?: boolean; format: (value: number) => string; ticks?: number[] };
  timeAxis?: boolean;
  draw?: (plot: uPlot, context: CanvasRenderingContext2D) => void;
  hover?: (seconds: number | null, plot: uPlot) => void;
  group: string;
}

export function makeLane(host: HTMLElement, view: View, lane: LaneOptions): uPlot {
  let following = false;
  const y = lane.y;
  const options: uPlot.Options = {
    width: Math.max(host.clientWidth, 50),
    height: lane.height + (lane.timeAxis ? 22 : 0),
    padding: lane.y ? [6, 0, 6, 0] : [0, lane.rightRoom ?? 0, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: lane.group, setSeries: false }, y: false, points: { show: false },
      drag: { x: true, y: false, setScale: true, dist: 5 }, bind: { dblclick: () => () => { view.move("all"); return null; } },
    },
    select: { show: true, left: 0, top: 0, width: 0, height: 0 },
    scales: {
      x: { time: false, auto: false, min: view.low, max: view.high },
      y: y ? { range: y.range, distr: y.log ? 3 : 1 } : { range: [0, 1] },
    },
    axes: [timeAxis(lane, host), valueAxis(lane)],
    series: [{}, ...(lane.series ?? [{ show: false }])],
    bands: lane.bands,
    hooks: {
      setScale: [(plot, key) => {
        if (key === "x" && !following) view.show(plot.scales.x.min ?? 0, plot.scales.x.max ?? view.end);
      }],
      drawClear: [(plot) => {
        plot.ctx.fillStyle = colour("panel");
        plot.ctx.fillRect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
      }],
      draw: lane.draw ? [(plot) => clipped(plot, lane.draw!)] : [],
      setCursor: lane.hover ? [(plot) => {
        const left = plot.cursor.left ?? -1;
        lane.hover!(left < 0 ? null : plot.posToVal(left, "x"), plot);
      }] : [],
    },
  };
  const plot = new uPlot(options, lane.data ?? [[0, view.end], [null, null]], host);
  view.follow((min, max) => {
    following = true;
    plot.setScale("x", { min, max });
    following = false;
  });
  onTheme(() => plot.redraw(false, true));
  new ResizeObserver(() => {
    if (host.clientWidth > 0 && host.clientWidth !== plot.width) plot.setSize({ width: host.clientWidth, height: options.height });
  }).observe(host);
  return plot;
}

function timeAxis(lane: LaneOptions, host: HTMLElement): uPlot.Axis {
  return {
    show: true, side: 2, size: lane.timeAxis ? 22 : 0, font: FONT, gap: 4, space: host.clientWidth < 500 ? 62 : 90, incrs: STEPS,
    stroke: () => colour("dim"), ticks: { show: false }, grid: { show: true, width: 1, stroke: () => colour("line") },
    // A label that would be cut at the right edge is left out.
    values: (plot, splits, _axis, _space, step) => splits.map((at) =>
      (lane.timeAxis && (lane.rightRoom || plot.valToPos(at, "x") < plot.over.clientWidth - 14) ? formatTick(at, step) : "")),
  };
}

function valueAxis(lane: LaneOptions): uPlot.Axis {
  const y = lane.y;
  return {
    show: true, size: lane.axisWidth ?? 66, font: FONT, gap: 6, space: 22, stroke: () => colour("dim"), ticks: { show: false },
    grid: { show: Boolean(y), width: 1, stroke: () => colour("line") },
    ...(y?.ticks ? { splits: () => y.ticks! } : {}),
    filter: (_plot: uPlot, splits: number[]) => splits,
    values: (_plot, splits) => splits.map((value) => (y && value !== null ? (value === 0 ? "0" : y.format(value)) : "")),
  } as uPlot.Axis;
}

function clipped(plot: uPlot, draw: (plot: uPlot, context: CanvasRenderingContext2D) => void): void {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.rect(left, top, width, height);
  plot.ctx.clip();
  draw(plot, plot.ctx);
  plot.ctx.restore();
}

// Where a time stands on the canvas, in its pixels.
export function pixelX(plot: uPlot): (ps: number) => number {
  const min = plot.scales.x.min ?? 0, max = plot.scales.x.max ?? 1;
  const { left, width } = plot.bbox;
  const factor = width / (max - min);
  return (ps) => left + (ps / PS_PER_S - min) * factor;
}
