// A button on each block of code; of an example with prompts it copies what a reader would type.
document.addEventListener("DOMContentLoaded", () => {
    for (const block of document.querySelectorAll("main.pdoc pre")) {
        const button = document.createElement("button");
        button.className = "copy";
        button.textContent = "copy";
        button.addEventListener("click", async () => {
            const text = block.querySelector("code")?.textContent ?? block.firstChild.textContent;
            const typed = text.split("\n").filter(line => /^(>>>|\.\.\.) /.test(line)).map(line => line.slice(4));
            await navigator.clipboard.writeText(typed.length ? typed.join("\n") : text);
            button.textContent = "copied";
            setTimeout(() => button.textContent = "copy", 1500);
        });
        block.append(button);
    }
});
