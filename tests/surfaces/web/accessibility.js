/*
 * What is wrong with what can be seen of the page right now, as sentences: controls without a name, text without
 * contrast, ids given twice, references to nothing, small targets, and contents that stick out of the window.
 */
(() => {
  const problems = [];
  const told = (/** @type {Element} */ node) =>
    `${node.tagName.toLowerCase()}.${node.getAttribute("class")}: ${(node.textContent ?? "").trim().slice(0, 40)}`;
  const isSeen = (/** @type {Element} */ node) =>
    node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    !node.closest("[inert], .visually-hidden, .skip");

  function nameOf(node) {
    const by = (node.getAttribute("aria-labelledby") ?? "")
      .split(" ")
      .map((id) => document.getElementById(id)?.textContent ?? "")
      .join(" ");
    const labels = [...(node.labels ?? [])].map((label) => label.textContent).join(" ");
    const legend = node.closest("fieldset")?.querySelector("legend")?.textContent ?? "";
    return [node.getAttribute("aria-label"), by, labels, node.matches("input") ? legend : node.textContent]
      .join(" ")
      .trim();
  }

  for (const node of document.querySelectorAll(
    "button, a[href], input, textarea, select, summary, [role], [tabindex='0'], dialog, progress, meter",
  )) {
    const needsName = !node.matches(
      "[role=status], [role=alert], [role=tablist] [role=presentation], pre, .thoughts, .table, .panel-content",
    );
    if (isSeen(node) && needsName && nameOf(node) === "") problems.push(`no name: ${told(node)}`);
  }
  for (const node of document.querySelectorAll("button, select, .button, [role=tab]")) {
    const { width, height } = node.getBoundingClientRect();
    // WCAG 2.2, 2.5.8: 24 by 24 pixels.
    if (isSeen(node) && (width < 24 || height < 24)) problems.push(`small: ${told(node)} ${width}x${height}`);
  }

  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) problems.push(`twice: #${id}`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) {
      for (const id of node.getAttribute(name).split(" "))
        if (!document.getElementById(id) && !node.closest("[hidden]"))
          problems.push(`${name} to nothing: ${told(node)}`);
    }
  }

  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((part) =>
      part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  function groundOf(node) {
    for (let each = node; each; each = each.parentElement) {
      const [red, green, blue, alpha = 1] = channels(getComputedStyle(each).backgroundColor);
      if (alpha === 1) return [red, green, blue];
    }
    return [255, 255, 255];
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const covered = document.querySelector("dialog[open]");
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    if (
      !text.textContent.trim() ||
      !isSeen(node) ||
      node.closest(":disabled, option, noscript") ||
      (covered && !covered.contains(node))
    )
      continue;
    const front = luminance(channels(getComputedStyle(node).color).slice(0, 3));
    const ground = luminance(groundOf(node));
    const ratio = (Math.max(front, ground) + 0.05) / (Math.min(front, ground) + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${told(node)}`);
  }

  if (document.documentElement.scrollWidth > innerWidth)
    problems.push(`the page is ${document.documentElement.scrollWidth} wide in ${innerWidth}`);
  for (const node of document.querySelectorAll("#messages, #panel-content, dialog, .sidebar")) {
    if (isSeen(node) && node.scrollWidth > node.clientWidth + 1) problems.push(`sticks out: ${told(node)}`);
  }
  return problems;
})()
