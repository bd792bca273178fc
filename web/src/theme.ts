// Colours come from the style sheet, so that light, dark and paper are said once; drawings ask again when they change.

type Listener = () => void;
const listeners: Listener[] = [];
let cache: Record<string, string> = {};

export function colour(name: string): string {
  cache[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return cache[name];
}

export function onTheme(listener: Listener): void {
  listeners.push(listener);
}

function changed(): void {
  cache = {};
  for (const listener of listeners) listener();
}

for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", changed);
