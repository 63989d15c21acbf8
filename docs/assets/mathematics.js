// Every formula of a page, set by KaTeX; a mistake in one is an error in the console, which a test would see.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const text = element.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode, strict: "error" });
  }
});
