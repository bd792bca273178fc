// The page's data, as src/phasepoint/report/html_data.py writes it: integers of picoseconds, one list per column.

export interface Phase { id: number; name: string; colour: string }
export interface Strip {
  start: number[]; dur: number[]; phase: (number | null)[]; name: string[];
  first: (number | null)[]; last: (number | null)[]; merged: number[];
}
export interface Points { at: number[]; step: number[]; dur: number[]; input: number[]; phase: (number | null)[] }
export interface Bins {
  start: number[]; end: number[]; first: number[]; n: number[]; p05: number[]; median: number[]; p95: number[];
  max: number[]; input_share: (number | null)[];
}
export interface Marks { start: number[]; dur: number[]; text: string[]; gone?: boolean[] }
export interface Series { name: string; unit: string; at: number[]; values: number[] }
// Ratios; a list is empty where nothing of it is known.
export interface Machine {
  start: number[]; end: number[]; waiting: (number | null)[]; crowded: (number | null)[]; held: (number | null)[]; speed: (number | null)[];
}
export interface Timeline {
  all_steps: boolean; points: Points; bins: Bins; series: Series[];
  marks: Record<string, Marks>; machine: Machine | null;
}
export interface Layers {
  name: string[]; parent: (number | null)[]; is_op: boolean[]; self_ps: number[]; flop: number[]; bytes: number[];
}
export interface Distribution { edges: number[]; counts: number[]; beyond: number; longest: number }
export interface Roofline {
  op: string[]; self_ps: number[]; flop_per_byte: number[]; flop_per_s: number[];
}
export interface Trace {
  tracks: string[]; names: string[]; categories: string[]; track: number[]; name: number[]; category: number[];
  depth: number[]; start: number[]; dur: number[]; end: number; label: string;
}
export interface PhaseDetails {
  layers: Layers | null; distribution: Distribution; roofline: Roofline; trace: Trace | null;
  median: number; p05: number; p95: number;
}
export interface Peaks { memory_bytes_per_s: number; rates: { kind: string; flop_per_s: number }[] }
export interface StackRoofline { points: Roofline; peaks: Peaks }
export interface Method { method: string; strip: Strip; colours: Record<string, string> }
export interface PageData {
  run: string; end: number; phases: Phase[]; strip: Strip; timeline: Timeline | null;
  details: Record<string, PhaseDetails>; peaks: Peaks | null; stack: Record<string, StackRoofline>; methods: Method[];
  category_colours: Record<string, string>; outside_colour: string; slower_colour: string;
}

export function readData(): PageData {
  return JSON.parse(document.getElementById("data")?.textContent ?? "{}") as PageData;
}
