"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const shown = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = size >= 1e-4 && size < 1e7 ? String(Number(value.toPrecision(3))) : value.toExponential(2);
    return text.replace(/-/g, "\u2212");
  };

  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x - box.width / 2), window.innerWidth - box.width - 8);
    const above = y - box.height - 14;
    tip.style.left = left + "px";
    tip.style.top = (above > 8 ? above : y + 18) + "px";
  }
  // What the keyboard opened moves along when the page scrolls; what the pointer opened goes away.
  let again = null;
  function hide() { tip.hidden = true; again = null; }

  // Charts with a curve: a cursor that follows the pointer or the arrow keys.
  // Points lie evenly between low and high.
  const last = (plot) => (data[plot.id].below ?? data[plot.id].mean).length - 1;
  function point(plot, index) {
    const it = data[plot.id];
    const at = Math.min(Math.max(index, 0), last(plot));
    plot.dataset.at = String(at);
    const share = at / last(plot);
    const cursor = plot.querySelector(".cursor");
    cursor.setAttribute("x1", 100 * share + "%");
    cursor.setAttribute("x2", 100 * share + "%");
    plot.classList.add("active");
    const value = it.low + share * (it.high - it.low);
    const where = it.name + " = " + (it.dates ? new Date(864e5 * value).toISOString().slice(0, 10) : shown(value));
    const text = it.below
      ? where + "\n" + (100 * it.below[at]).toFixed(1) + " % of the posterior lies below"
      : where + "\n" + it.outcome + ": " + shown(it.mean[at]) + "\n" + it.prob + " %: " + shown(it.lower[at]) + " to " + shown(it.upper[at]);
    const box = plot.getBoundingClientRect();
    show(text, box.left + share * box.width, box.top);
  }
  function walk(plot, index) { point(plot, index); again = () => point(plot, index); }
  function leave(plot) { plot.classList.remove("active"); hide(); }
  for (const plot of document.querySelectorAll(".plot")) {
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      point(plot, Math.round((event.clientX - box.left) / box.width * last(plot)));
    });
    plot.addEventListener("pointerleave", () => leave(plot));
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) walk(plot, Math.floor(last(plot) / 2)); });
    plot.addEventListener("blur", () => leave(plot));
    plot.addEventListener("keydown", (event) => {
      const at = Number(plot.dataset.at ?? Math.floor(last(plot) / 2));
      const step = event.shiftKey ? 10 : 1;
      const target = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: last(plot) }[event.key];
      if (event.key === "Escape") leave(plot);
      if (target === undefined) return;
      event.preventDefault();
      walk(plot, target);
    });
  }

  // Rows and bars: what they say in full.
  for (const row of document.querySelectorAll("[data-tip]")) {
    const open = () => {
      const box = (row.querySelector("svg") ?? row).getBoundingClientRect();
      show(row.dataset.tip, box.left + box.width / 2, box.top);
    };
    row.addEventListener("pointermove", open);
    row.addEventListener("pointerleave", hide);
    row.addEventListener("focus", () => { if (row.matches(":focus-visible")) { open(); again = open; } });
    row.addEventListener("blur", hide);
    row.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  }
  // A title would be shown a second time by the browser: its text becomes the label.
  for (const title of document.querySelectorAll("svg > title")) {
    const drawing = title.parentElement;
    drawing.setAttribute("aria-label", title.textContent);
    if (drawing.hasAttribute("aria-labelledby")) {
      drawing.setAttribute("aria-describedby", drawing.getAttribute("aria-labelledby").split(" ")[1]);
      drawing.removeAttribute("aria-labelledby");
    }
    title.remove();
  }
  window.addEventListener("scroll", () => { if (again) again(); else hide(); }, { passive: true });

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      if (source.querySelector("table")) {  // as a table, for a text editor
        window.getSelection().selectAllChildren(source);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
        return;
      }
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        window.getSelection().selectAllChildren(source);
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }
  window.addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
})();
