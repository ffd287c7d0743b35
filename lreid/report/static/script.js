/* Makes tables sortable and shows the filter. Without JavaScript, tables keep the order in which they were written.
   Heads become buttons. Cells are sorted by data-value, or by their text if they have none; cells with an empty value
   come last. The filter hides elements whose data-name (rows, lines, keys, matrices) lacks one of its words; for elements
   without data-name (rankings, identities) it compares the text. */
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    button.addEventListener("click", () => {
      const numbers = [...body.rows].every(row => "value" in row.cells[column].dataset);
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numbers;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => (key(a) === "") - (key(b) === "") || (down ? -1 : 1) *
        (numbers ? key(a) - key(b) : key(a).localeCompare(key(b), undefined, {numeric: true}));
      body.append(...[...body.rows].sort(order));
    });
  });
}
const filter = document.querySelector(".filter");
if (filter) {
  const named = [...document.querySelectorAll(filter.dataset.of)], count = filter.querySelector("output");
  const rows = named.filter(each => !("name" in each.dataset) || each.closest("table.compared"));
  const name = each => each.dataset.name ?? each.textContent;
  filter.classList.remove("off");
  filter.querySelector("input").addEventListener("input", event => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of named)
      each.classList.toggle("off", !words.every(word => name(each).toLowerCase().includes(word)));
    const shown = rows.filter(row => !row.classList.contains("off")).length;
    count.textContent = words.length ? `${shown} of ${rows.length} shown` : "";
  });
}
/* An image that a page shows several times is stored in it only once; see once() in rendering.py. */
const images = [...document.querySelectorAll("img[src]")];
for (const each of document.querySelectorAll("img[data-same]"))
  each.setAttribute("src", images[each.dataset.same].getAttribute("src"));
/* A click on a thumbnail enlarges it; a further click or the escape key makes it small again. */
for (const each of document.querySelectorAll(".frame img")) {
  each.tabIndex = 0;
  each.addEventListener("click", () => each.classList.toggle("large"));
  each.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === "Escape") each.classList.toggle("large", event.key === "Enter");
  });
}
/* A link to a section opens it. */
const opened = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  target?.querySelector("details")?.setAttribute("open", "");
};
addEventListener("hashchange", opened);
opened();
for (const link of document.querySelectorAll(".contents a")) link.addEventListener("click", () => setTimeout(opened));
