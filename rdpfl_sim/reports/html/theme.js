// Runs in the head, so that the page is never painted in the wrong theme.
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
