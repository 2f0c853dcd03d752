// Runs in the head, before the page is painted, to avoid a flash of the wrong theme.
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
