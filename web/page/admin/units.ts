// Times, sizes and counts in words.

import { bytes } from "../words.js";

export function moment(secondsSince1970: number | null): string {
  return secondsSince1970 === null
    ? ""
    : new Date(1000 * secondsSince1970).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

/** Two units of it, rounded down. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86_400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

export function size(count: number): string {
  return count < 1e9 ? bytes(count) : `${(count / 1e9).toFixed(1)} GB`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}
