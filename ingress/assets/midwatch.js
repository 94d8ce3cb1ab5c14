// What htmx does not do. Every page can be read and every form sent without it.
// It comes before htmx, which connects as soon as it is there: what listens has to be there already.
(() => {
  "use strict";

  const byId = (id) => document.getElementById(id);

  // Newer rows are announced, never inserted: what somebody is reading stays where it is.
  const standing = byId("standing");
  const newer = byId("newer");
  // A form that is being filled in is not to be loaded again.
  const filling = document.querySelector("form.big");
  if (standing && newer && !filling) {
    standing.addEventListener("newer", (event) => {
      const here = new URL(window.location.href);
      here.searchParams.delete("done");
      here.searchParams.delete("after");
      here.hash = "";
      const link = document.createElement("a");
      link.href = here.href;
      link.textContent = `${event.detail.data}: show`;
      newer.replaceChildren(link);
    });
  }

  // A connection that breaks is made again by the extension, but not a first one that failed.
  if (standing) {
    window.setInterval(() => {
      const connecting = standing.classList.contains("htmx-request");
      if (!document.hidden && !connecting) standing.dispatchEvent(new Event("again"));
    }, 5000);
  }

  // A sentence near a form is what its sender looks for next.
  byId("wrong")?.focus();

  // What is answered must have been seen: the buttons work 800 ms after the page, or the window with it, came to the
  // front. A key or a click that was meant for something else does not answer.
  for (const form of document.querySelectorAll("form[data-arm]")) {
    const buttons = form.querySelectorAll("button");
    let timer = 0;
    const arm = () => {
      window.clearTimeout(timer);
      for (const button of buttons) button.disabled = true;
      timer = window.setTimeout(() => {
        for (const button of buttons) button.disabled = false;
      }, 800);
    };
    arm();
    window.addEventListener("focus", arm);
    window.addEventListener("pageshow", arm);
    document.addEventListener("visibilitychange", arm);
  }

  // Where the clipboard cannot be used, the text is selected instead.
  const copy = async (button) => {
    const source = byId(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      if (source.select) source.select();
      else window.getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
  };
  for (const button of document.querySelectorAll("button.copies")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }

  // The same words as the server's: `3 min ago`, `in 2 h`.
  const rough = (seconds) => {
    if (seconds < 100) return `${seconds} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} days`;
  };
  const renew = () => {
    for (const time of document.querySelectorAll("time[data-relative]")) {
      const seconds = Math.trunc((Date.parse(time.dateTime) - Date.now()) / 1000);
      if (Number.isNaN(seconds)) continue;
      if (seconds > 0) time.textContent = `in ${rough(seconds)}`;
      else if (seconds > -10) time.textContent = "just now";
      else time.textContent = `${rough(-seconds)} ago`;
    }
  };
  window.setInterval(renew, 10000);

  // Every time carries its zone; the reader's own one is a hover away.
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  for (const time of document.querySelectorAll("time")) {
    const at = Date.parse(time.dateTime);
    if (!Number.isNaN(at)) time.title = `${time.title ? `${time.title} · ` : ""}${local.format(at)}`;
  }

  // Where no zone was chosen yet, it is the browser's own one: from here on the server knows it too.
  const own = local.resolvedOptions().timeZone;
  if (own && !document.cookie.includes("midwatch_zone=")) {
    document.cookie = `midwatch_zone=${own}; Path=/; Max-Age=31536000; SameSite=Lax`;
    const parts = { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };
    const wall = new Intl.DateTimeFormat("en-GB", { ...parts, hourCycle: "h23", timeZone: own });
    for (const time of document.querySelectorAll("time[data-reader]")) {
      time.textContent = `${wall.format(Date.parse(time.dateTime)).replace(",", "")} ${own}`;
    }
    for (const name of document.querySelectorAll("[data-reader-zone]")) name.textContent = own;
  }

  document.documentElement.classList.add("script");
})();
