// A small box of lines beside the pointer.
import { element } from "./dom";

export interface Tip { show(lines: string[], clientX: number, clientY: number): void; hide(): void }

export function makeTip(root: HTMLElement): Tip {
  const box = element("div", { class: "tip", hidden: "" });
  root.append(box);
  return {
    hide() { box.hidden = true; },
    show(lines, clientX, clientY) {
      box.hidden = lines.length === 0;
      if (box.hidden) return;
      box.textContent = lines.join("\n");
      const outer = root.getBoundingClientRect();
      const x = clientX - outer.left, y = clientY - outer.top;
      const flip = x > outer.width - box.offsetWidth - 24;
      box.style.left = `${Math.max(flip ? x - box.offsetWidth - 14 : x + 14, 0)}px`;
      box.style.top = `${y + 16}px`;
    },
  };
}
