"use strict";
(() => {
  const cases = Array.from(document.querySelectorAll("details.case"));
  const texts = cases.map((element) => element.dataset.text.toLowerCase());
  const outcomes = cases.map((element) => element.dataset.outcomes.trim().split(" "));
  const text = document.getElementById("text");
  const boxes = Array.from(document.querySelectorAll(".choices input"));
  const count = document.getElementById("count");

  function filter() {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let shown = 0;
    cases.forEach((element, number) => {
      const fits = words.every((word) => texts[number].includes(word)) && outcomes[number].some((o) => wanted.has(o));
      element.hidden = !fits;
      shown += fits;
    });
    count.textContent = `${shown} of ${cases.length} cases shown`;
  }

  function openTarget() {
    const target = /^#case-\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (target) {
      target.open = true;
      target.scrollIntoView();
    }
  }

  function centre(event) {
    for (const box of event.target.querySelectorAll("figure .scroll")) box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;
  }

  const setOpen = (open) => cases.forEach((element) => {
    if (!open || !element.hidden) element.open = open;
  });
  text.addEventListener("input", filter);
  boxes.forEach((box) => box.addEventListener("change", filter));
  document.getElementById("open").addEventListener("click", () => setOpen(true));
  document.getElementById("close").addEventListener("click", () => setOpen(false));
  document.addEventListener("toggle", centre, true);
  addEventListener("hashchange", openTarget);
  document.getElementById("tools").hidden = false;
  filter();
  openTarget();
})();
