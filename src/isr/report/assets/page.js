// The page itself: theme, copy buttons, and the front whose points show their equations.

function setUpTheme() {
  const button = byId("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = `Switch to ${isDark() ? "light" : "dark"}`;
    redrawAll();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    redrawAll();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    redrawAll();
  });
  show();
}

// A link into a folded section opens it, and so does printing.
function setUpFolds() {
  const open = () => {
    const target = location.hash.length > 1 && byId(location.hash.slice(1));
    const fold = target && target.querySelector("details.fold");
    if (fold) fold.open = true;
  };
  addEventListener("hashchange", open);
  for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => setTimeout(open));
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details.fold")) fold.open = true;
  });
  open();
}

// Without a mathematical font browsers set subscripts on the base line; the style sheet then lowers them.
function setUpMathematics() {
  const holder = element("div", { class: "unseen" });
  holder.innerHTML = "<math><msub><mi>x</mi><mn>1</mn></msub></math>";
  document.body.append(holder);
  const [base, below] = holder.querySelector("msub").children;
  const drop = below.getBoundingClientRect().bottom - base.getBoundingClientRect().bottom;
  document.documentElement.classList.toggle("no-math-font", drop < 0.1 * parseFloat(getComputedStyle(base).fontSize));
  holder.remove();
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from a file may have no clipboard; the old way needs a selection.
    const area = element("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function setUpCopying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await toClipboard(await unpack(DATA.sources[button.dataset.copy]));
      byId("copied").textContent = `${button.dataset.copy} source copied`;
      button.classList.add("done");
      setTimeout(() => button.classList.remove("done"), 1500);
    });
  }
}

function setUpFront() {
  const group = document.querySelector("[role=radiogroup]");
  if (!group || !DATA.front) return;
  const points = [...group.querySelectorAll("[role=radio]")];
  const pick = async (index, focus) => {
    points.forEach((point, i) => {
      point.setAttribute("aria-checked", String(i === index));
      point.setAttribute("tabindex", i === index ? "0" : "-1");
    });
    for (const row of document.querySelectorAll("#front-table tr[data-point]")) {
      row.classList.toggle("picked", Number(row.dataset.point) === index);
    }
    if (focus) points[index].focus();
    // Made by this library, names escaped; the content security policy runs no script in it either.
    const markup = await unpack(DATA.front[index]);
    if (points[index].getAttribute("aria-checked") === "true") byId("front-equations").innerHTML = markup;
  };
  points.forEach((point, i) => {
    point.addEventListener("click", () => pick(i, false));
    point.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === " " || event.key === "Enter") pick(i, true);
      else if (step) pick((i + step + points.length) % points.length, true);
      else return;
      event.preventDefault();
    });
  });
  for (const button of document.querySelectorAll("#front-table button[data-point]")) {
    button.addEventListener("click", () => pick(Number(button.dataset.point), false));
  }
}
