// What the page needs beside htmx: the theme, local times, the Live button, and the keyboard. Loaded in the head, so
// that a page whose reader chose a theme never flashes in the other.
"use strict";
(() => {
  const root = document.documentElement;
  const recall = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private windows may refuse */ } };
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const other = () => ((root.dataset.theme || (systemDark.matches ? "dark" : "light")) === "light" ? "dark" : "light");

  const chosen = recall("arbiter-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  let live = true;

  // The server writes UTC; people read their own time. Days other than today's are named.
  const localise = (scope) => {
    const today = new Date().toDateString();
    for (const time of scope.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      const clock = moment.toLocaleTimeString(undefined, { hour12: false });
      const full = "full" in time.dataset;
      time.textContent = full || moment.toDateString() !== today
        ? `${moment.toLocaleDateString(undefined, full ? undefined : { month: "short", day: "numeric" })} ${clock}` : clock;
      time.title = time.dateTime;
    }
  };

  const markOpened = () => {
    const opened = document.querySelector("#detail [data-request]");
    for (const link of document.querySelectorAll("a.row")) {
      if (opened && link.id === `row-${opened.dataset.request}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };

  const refresh = (scope) => {
    localise(scope);
    markOpened();
    for (const place of scope.querySelectorAll("[data-origin]")) place.textContent = location.origin;
    for (const button of scope.querySelectorAll("button[data-copy]")) button.hidden = !navigator.clipboard;
    showTheme();
  };

  const showTheme = () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.textContent = other() === "light" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use the ${other()} theme`);
  };

  const showLive = (text) => {
    const button = document.getElementById("live");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-pressed", String(live));
    button.textContent = text || (live ? "Live" : "Paused");
    button.classList.toggle("lost", Boolean(text));
  };

  const step = (by) => {
    const links = [...document.querySelectorAll("a.row")];
    if (!links.length) return;
    let at = links.indexOf(document.activeElement);
    if (at < 0) at = links.findIndex((link) => link.hasAttribute("aria-current"));
    const next = links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("DOMContentLoaded", () => {
    refresh(document);
    showLive();
    systemDark.addEventListener("change", showTheme);
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.id === "theme") {
        root.dataset.theme = other();
        keep("arbiter-theme", root.dataset.theme);
        showTheme();
      } else if (button.id === "live") {
        live = !live;
        showLive();
      } else if (button.dataset.copy) {
        const text = document.getElementById(button.dataset.copy).textContent;
        navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; });
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
      if (event.key === "j") step(1);
      if (event.key === "k") step(-1);
    });
    // A list that is paused or that nobody looks at asks for nothing.
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      const { id } = event.detail.elt;
      if ((id === "list" && !live) || (["list", "standing"].includes(id) && document.hidden)) event.preventDefault();
    });
    document.body.addEventListener("htmx:afterRequest", (event) => {
      if (event.detail.elt.id === "list") showLive(event.detail.failed || !event.detail.xhr.status ? "Not reachable" : "");
    });
    document.body.addEventListener("htmx:historyRestore", () => showLive());
    document.body.addEventListener("htmx:afterSwap", (event) => {
      refresh(document);
      const target = event.detail.target;  // none when the browser's Back brought the whole page again
      if (!target || target.id !== "detail") return;
      const opened = target.querySelector("h2");
      document.getElementById("said").textContent = opened ? `Opened: ${opened.textContent}` : "";
      target.scrollTop = 0;
    });
  });
})();
