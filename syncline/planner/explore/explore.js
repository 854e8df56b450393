"use strict";
// What is moved goes to the server, at most one message per frame; what comes back is put in by the framework.
(() => {
  const pending = new Map();
  let scheduled = false;
  const send = (name, value) => {
    pending.set(name, value);
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      for (const [field, text] of pending) emitEvent("moved", { name: field, text });
      pending.clear();
    });
  };
  const told = (slider) => slider.dataset.told.split("|")[slider.value];
  const moved = (slider) => {
    const text = document.getElementById(slider.id + "-text");
    text.value = told(slider);
    text.removeAttribute("aria-invalid");
    slider.setAttribute("aria-valuetext", told(slider));
    send(slider.name, slider.dataset.stops.split("|")[slider.value]);
  };
  document.addEventListener("input", (event) => {
    const from = event.target;
    if (from.type === "range") moved(from);
  });
  document.addEventListener("change", (event) => {
    const from = event.target;
    if (!from.closest || !from.closest("#settings")) return;
    if (from.tagName === "SELECT") send(from.name, from.value);
    if (from.type === "checkbox") {
      const boxes = [...document.querySelectorAll("#settings input[name=methods]:checked:not(:disabled)")];
      send("methods", boxes.map((one) => one.value).join(","));
    }
    if (from.classList.contains("typed")) {
      const slider = document.getElementById(from.dataset.name);
      const at = slider.dataset.told.split("|").indexOf(from.value.trim());
      send(from.dataset.name, at < 0 ? from.value.trim() : slider.dataset.stops.split("|")[at]);
    }
  });
  // On a telephone what is told comes first, and settings are opened by who wants them.
  document.addEventListener("DOMContentLoaded", () => {
    const fold = () => {
      const panel = document.getElementById("panel");
      if (!panel) return requestAnimationFrame(fold);
      if (matchMedia("(max-width: 860px)").matches) panel.open = false;
    };
    fold();
  });
  document.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.classList && event.target.classList.contains("typed")) {
      event.preventDefault();
      event.target.dispatchEvent(new Event("change", { bubbles: true }));
    }
  });
  const picture = () => document.querySelector("[data-picture]");
  const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
  document.addEventListener("click", async (event) => {
    const from = event.target.closest("button, a");
    if (!from) return;
    if (from.classList.contains("show")) send("shown", from.dataset.method);
    if (from.id === "theme") {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      from.setAttribute("aria-pressed", String(dark()));
    }
    if (from.hasAttribute("data-picture")) {
      const link = new URL(from.href);
      link.searchParams.set("theme", dark() ? "dark" : "light");
      from.href = link;
    }
    if (from.id === "advise") emitEvent("advise", {});
    if (from.id === "copy") {
      try {
        await navigator.clipboard.writeText(location.href);
        from.textContent = "Copied";
      } catch {
        from.textContent = "The address bar has it";
      }
      setTimeout(() => { from.textContent = "Copy link"; }, 1500);
    }
    if (from.id === "png") {
      const link = new URL(picture().href);
      link.searchParams.set("theme", dark() ? "dark" : "light");
      const image = new Image();
      image.src = link;
      await image.decode();
      const canvas = document.createElement("canvas");
      canvas.width = 2 * image.naturalWidth;
      canvas.height = 2 * image.naturalHeight;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      const file = document.createElement("a");
      file.download = "explored.png";
      file.href = canvas.toDataURL("image/png");
      file.click();
    }
  });
  // A button that was pressed is made anew with its table: who moves by keys stays on it.
  window.exploreFocus = (method) => {
    if (document.activeElement !== document.body) return;
    const button = [...document.querySelectorAll("button.show")].find((one) => one.dataset.method === method);
    if (button) button.focus({ preventScroll: true });
  };
  // What the server says of a setting: its text and its place, or that what was typed cannot be.
  window.exploreSet = (name, text, place, invalid) => {
    const typed = document.getElementById(name + "-text");
    if (typed && invalid) { typed.setAttribute("aria-invalid", "true"); return; }
    if (typed) { typed.removeAttribute("aria-invalid"); if (document.activeElement !== typed) typed.value = text; }
    const slider = document.getElementById(name);
    if (slider && slider.type === "range" && document.activeElement !== slider) {
      slider.value = place;
      slider.setAttribute("aria-valuetext", text);
    }
  };
})();
