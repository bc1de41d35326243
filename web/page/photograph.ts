// Pictures for models of photographs: a file or the clipboard, cut to the square in its middle, as app/cli/demo/cifar10.py does.

import { changed, context, made } from "./elements.js";
import { type Form, Missing } from "./missing.js";
import { boxed } from "./photograph_image.js";

const LARGEST = 1024; // pixels a side that are averaged; larger pictures are made smaller by the browser first
const SHOWN = 192; // pixels a side, on the screen

export function photograph(side: number, classes: readonly string[]): Omit<Form, "isLogits"> {
  let image: Float64Array | null = null;
  const seen = made("canvas", { width: side, height: side, className: "photograph" });
  seen.style.width = `${SHOWN}px`;
  seen.setAttribute("role", "img");
  seen.setAttribute("aria-label", "No picture yet");
  const note = made("p", {
    className: "quiet",
    textContent: `The square in the middle of your picture is encrypted, as 3 x ${side} x ${side} numbers.`,
  });
  note.setAttribute("role", "status");

  const take = async (file: File): Promise<void> => {
    try {
      image = await read(file, side);
    } catch {
      image = null; // the picture before it is not what the person chose
      context(seen).clearRect(0, 0, side, side);
      seen.setAttribute("aria-label", "No picture yet");
      note.textContent = `${file.name.slice(0, 40) || "This"} is no picture that this browser can read.`;
      return;
    } finally {
      changed(seen);
    }
    show(seen, side, image);
    seen.setAttribute("aria-label", `The picture as it is encrypted: ${file.name.slice(0, 40)}`);
    note.textContent = `This square is encrypted, as 3 x ${side} x ${side} numbers.`;
  };
  const chooser = made("input", { id: "photograph", type: "file", accept: "image/*" });
  chooser.addEventListener("change", () => {
    const [file] = chooser.files ?? [];
    if (file !== undefined) void take(file);
  });
  const element = made(
    "div",
    { className: "seen-large" },
    made("label", { htmlFor: "photograph", textContent: `A picture of one of these: ${classes.join(", ")}` }),
    chooser,
    made("p", { className: "quiet", textContent: "You can also paste a picture. Only its encrypted form leaves this browser." }),
    seen,
    note,
  );
  const pasted = (event: ClipboardEvent): void => {
    if (!element.isConnected) return document.removeEventListener("paste", pasted); // another model was chosen
    const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
    if (file !== undefined && element.closest("[inert]") === null) void take(file); // not while an answer is on its way
  };
  document.addEventListener("paste", pasted);
  return { element, numbers: () => (image === null ? new Missing("Choose a picture first, or paste one.", chooser) : [...image]), classes };
}

/** [3, side, side] in [0, 1]. */
async function read(file: File, side: number): Promise<Float64Array> {
  const picture = await createImageBitmap(file); // the right way up
  const square = Math.min(picture.width, picture.height);
  const size = Math.min(square, LARGEST);
  const canvas = made("canvas", { width: size, height: size });
  const drawing = context(canvas);
  Object.assign(drawing, { imageSmoothingQuality: "high", fillStyle: "white" });
  drawing.fillRect(0, 0, size, size); // behind what is transparent
  drawing.drawImage(picture, (picture.width - square) / 2, (picture.height - square) / 2, square, square, 0, 0, size, size);
  picture.close();
  return boxed(drawing.getImageData(0, 0, size, size).data, size, side);
}

function show(canvas: HTMLCanvasElement, side: number, image: Float64Array): void {
  const pixels = new ImageData(side, side);
  for (let i = 0; i < side * side; ++i)
    pixels.data.set([...[0, 1, 2].map((colour) => Math.round(255 * (image[colour * side * side + i] as number))), 255], 4 * i);
  context(canvas).putImageData(pixels, 0, 0);
}
