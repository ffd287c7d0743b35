/* Adds a copy button to every block of code. */
for (const block of document.querySelectorAll("pre")) {
  const button = document.createElement("button"), code = block.textContent;
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.trimEnd());
      button.textContent = "copied";
    } catch { /* copying is not allowed here: select the code, so that one key copies it */
      getSelection().selectAllChildren(block.querySelector("code") ?? block);
      button.textContent = "selected";
    }
    setTimeout(() => button.textContent = "copy", 2000);
  });
  const box = document.createElement("div");
  box.className = "code";
  block.replaceWith(box);
  box.append(block, button);
}
