// Panels of which one is seen at a time. Without this script, and on paper, they stand one below the other.
import { element } from "./dom";

export function buildTabs(root: HTMLElement): void {
  const panels = [...root.querySelectorAll<HTMLElement>(":scope > [data-tab]")];
  const list = element("div", { role: "tablist", "aria-label": root.dataset.tabs ?? "", class: "tablist" });
  const tabs = panels.map((panel, i) => {
    const tab = element("button", { type: "button", role: "tab", id: `${panel.id}-tab`, "aria-controls": panel.id }, panel.dataset.tab ?? "");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => show(i));
    panel.addEventListener("reveal", () => show(i));
    return tab;
  });
  function show(chosen: number): void {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
  }
  list.addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement as HTMLButtonElement);
    const goes: Record<string, number> = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 };
    if (now < 0 || !(event.key in goes)) return;
    event.preventDefault();
    const next = (goes[event.key] + tabs.length) % tabs.length;
    show(next);
    tabs[next].focus();
  });
  list.append(...tabs);
  root.prepend(list);
  show(0);
}

// A link into a panel that is not seen shows it.
export function showTabOf(target: HTMLElement): void {
  target.closest<HTMLElement>("[role=tabpanel]")?.dispatchEvent(new Event("reveal"));
}
