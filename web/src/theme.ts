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

// Black or white, whichever is easier to read on a colour written as #rrggbb (relative luminance of WCAG 2.1).
export function inkOn(ground: string): string {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(ground.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}
