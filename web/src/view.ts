// The stretch of an axis that is shown; everything drawn over it follows.

type Listener = (low: number, high: number) => void;
const LEAST_SHARE = 1e-6;

export class View {
  low = 0;
  high: number;
  private listeners: Listener[] = [];

  constructor(readonly end: number) { this.high = end; }

  show(low: number, high: number): void {
    const width = Math.min(Math.max(high - low, this.end * LEAST_SHARE), this.end);
    const from = Math.min(Math.max(low, 0), this.end - width);
    if (from === this.low && from + width === this.high) return;
    [this.low, this.high] = [from, from + width];
    for (const listener of this.listeners) listener(this.low, this.high);
  }

  follow(listener: Listener): void { this.listeners.push(listener); }

  move(action: string, at = (this.low + this.high) / 2): void {
    const width = this.high - this.low, third = width / 3;
    const zoom = (factor: number) => this.show(at - (at - this.low) * factor, at + (this.high - at) * factor);
    if (action === "in") zoom(0.5);
    else if (action === "out") zoom(2);
    else if (action === "left") this.show(this.low - third, this.high - third);
    else if (action === "right") this.show(this.low + third, this.high + third);
    else this.show(0, this.end);
  }
}

const KEYS: Record<string, string> = {
  "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "all", "0": "all", Escape: "all",
};

// Zoom and move by keyboard, by wheel with Ctrl or Cmd held (the wheel alone scrolls the page), and by buttons.
export function steer(root: HTMLElement, view: View, timeAt: (event: MouseEvent) => number): void {
  root.addEventListener("keydown", (event) => {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    view.move(action);
  });
  root.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    view.move(event.deltaY < 0 ? "in" : "out", timeAt(event));
  }, { passive: false });
}
