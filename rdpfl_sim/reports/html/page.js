"use strict";
(() => {
  const PALETTES = {
    light: {
      ink: "#1d2433", muted: "#535c6d", grid: "#e8ebf1", ground: "#ffffff", soft: "#eef1f6",
      honest: "#0072b2", byzantine: "#d55e00", lost: "#7a2d8c", dropped: "#9aa3b2", faint: "#c9d0db",
      green: "#009e73", yellow: "#c98a00", sky: "#3b9bd6", purple: "#b0578d",
      "honest-band": "rgba(0,114,178,0.14)", "byzantine-band": "rgba(213,94,0,0.14)", "green-band": "rgba(0,158,115,0.14)",
      "purple-band": "rgba(176,87,141,0.14)", "yellow-band": "rgba(201,138,0,0.14)", "sky-band": "rgba(59,155,214,0.14)",
      "lost-band": "rgba(122,45,140,0.14)", "muted-band": "rgba(83,92,109,0.14)", "training": "rgba(93,103,121,0.22)",
      diverging: [[0, "#b35806"], [0.25, "#f6b96d"], [0.5, "#f4f5f7"], [0.75, "#8dc1e0"], [1, "#2166ac"]],
    },
    dark: {
      ink: "#e7ebf2", muted: "#a6b0c2", grid: "#28303d", ground: "#181d26", soft: "#222936",
      honest: "#56b4e9", byzantine: "#ff9a4d", lost: "#d58ae6", dropped: "#6c778a", faint: "#3d4757",
      green: "#3fcfa2", yellow: "#f0c052", sky: "#8fd0f5", purple: "#e79ac8",
      "honest-band": "rgba(86,180,233,0.17)", "byzantine-band": "rgba(255,154,77,0.17)", "green-band": "rgba(63,207,162,0.17)",
      "purple-band": "rgba(231,154,200,0.17)", "yellow-band": "rgba(240,192,82,0.17)", "sky-band": "rgba(143,208,245,0.17)",
      "lost-band": "rgba(213,138,230,0.17)", "muted-band": "rgba(166,176,194,0.17)", "training": "rgba(154,165,184,0.28)",
      diverging: [[0, "#ff9a4d"], [0.25, "#8a5a33"], [0.5, "#222936"], [0.75, "#2f6f9f"], [1, "#56b4e9"]],
    },
  };
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let theme = root.dataset.theme;

  // Replace every "@name" in a figure with the theme's colour or colour scale of that name.
  const withColours = (value, palette) => {
    if (typeof value === "string") return value[0] === "@" ? palette[value.slice(1)] ?? value : value;
    if (Array.isArray(value)) return value.length > 50 && typeof value[0] === "number" ? value : value.map((v) => withColours(v, palette));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, withColours(v, palette)]));
    return value;
  };

  const withDefaults = (layout, palette, width) => {
    const out = { ...layout };
    const axes = Object.keys(out).filter((key) => /^[xy]axis\d*$/.test(key));
    for (const key of new Set(["xaxis", "yaxis", ...axes])) {
      const axis = out[key] ?? {};
      out[key] = {
        gridcolor: palette.grid, zerolinecolor: palette.grid, linecolor: palette.grid, automargin: true,
        showgrid: key.startsWith("y"), zeroline: false, ...axis,
        tickfont: { color: palette.muted, size: 12, ...(axis.tickfont ?? {}) },
        title: { standoff: 10, ...(axis.title ?? {}), font: { color: palette.ink, size: 13 } },
      };
    }
    const legend = { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { size: 12.5 }, bgcolor: "rgba(0,0,0,0)" };
    const family = getComputedStyle(document.body).fontFamily;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "zoom", hovermode: "closest", ...out,
      font: { family, color: palette.ink, size: 13 },
      margin: { l: 56, r: width < 560 ? 12 : 20, t: 34, b: 48, ...(layout.margin ?? {}) },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: palette.muted, activecolor: palette.ink },
      legend: { ...legend, ...(layout.legend ?? {}) },
      hoverlabel: { bgcolor: palette.ground, bordercolor: palette.faint, font: { family, color: palette.ink, size: 13 }, align: "left", namelength: -1 },
    };
  };

  const draw = (plot) => {
    const figure = figures[`${plot.dataset.card}/${plot.dataset.view}`];
    const palette = PALETTES[theme];
    const config = { responsive: true, displaylogo: false, scrollZoom: Boolean(figure.layout.meta?.scroll), displayModeBar: true,
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]] };
    const layout = withDefaults(withColours(figure.layout, palette), palette, plot.clientWidth);
    plot.dataset.drawn = `${theme}/${plot.dataset.view}`;
    return Plotly.react(plot, withColours(figure.data, palette), layout, config);
  };
  const drawVisible = () => {
    for (const plot of document.querySelectorAll("section:not([hidden]) .plot")) {
      if (plot.dataset.drawn !== `${theme}/${plot.dataset.view}`) draw(plot);
      else Plotly.Plots.resize(plot); // the window may have been resized while the plot was hidden
    }
  };

  const setTheme = (name) => {
    theme = name;
    root.dataset.theme = name;
    drawVisible();
  };
  document.getElementById("theme").addEventListener("click", () => setTheme(theme === "dark" ? "light" : "dark"));
  prefersDark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));

  const tabs = [...document.querySelectorAll("[role=tab]")];
  const select = (tab, setHash) => {
    for (const other of tabs) {
      const isSelected = other === tab;
      other.setAttribute("aria-selected", isSelected);
      other.tabIndex = isSelected ? 0 : -1;
      document.getElementById(other.id.replace("tab-", "panel-")).hidden = !isSelected;
    }
    if (setHash) history.replaceState(null, "", `#${tab.id.slice(4)}`);
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    drawVisible();
  };
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => select(tab, true));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      select(next, true);
    });
  });
  for (const button of document.querySelectorAll(".choices button")) {
    button.addEventListener("click", () => {
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", other === button);
      const plot = button.closest(".card").querySelector(".plot");
      plot.dataset.view = button.dataset.view;
      draw(plot);
    });
  }
  const tabOfHash = () => tabs.find((tab) => `#${tab.id.slice(4)}` === location.hash);
  addEventListener("hashchange", () => tabOfHash() && select(tabOfHash(), false));
  select(tabOfHash() ?? tabs[0], false);
  root.dataset.ready = "yes";
})();
