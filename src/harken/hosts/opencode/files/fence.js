// The fence of one run of opencode by Harken. What a run may do stands in fence.json, beside the settings.
//
// The settings deny every tool; only this plugin opens some, so that without it nothing can be done at all. opencode
// itself judges a path by its letters and lets through whatever is in the repository: here a path is followed to where
// it leads, and has to end in the folder of the run.

import { lstatSync, readFileSync, realpathSync } from "node:fs"
import path from "node:path"

const rules = JSON.parse(readFileSync(new URL("../fence.json", import.meta.url), "utf8"))
const root = realpathSync(rules.folder)
const PLAIN = /^[A-Za-z0-9_.,:=+@%/ -]+$/
const PATCHED = /^\s*\*\*\*\s*(?:(?:Add|Update|Delete) File|Move to)\s*:(.*)$/gm
// By these git, asked to read, writes a file, starts a program, or reads what is not in the repository.
const OF_GIT = /^(?:--(?:ou|ext-|textc|exec|open|upload-p|receive-p|no-index|contents|config|git-dir|work-tree|help)|-O)/
const EDITS = new Set(["edit", "write", "apply_patch", "patch", "multiedit"])

function deny(why) {
  throw new Error(`harken: ${why}`)
}

function where(given) {
  let at = path.resolve(root, given)
  let rest = ""
  for (;;) {
    try {
      return path.join(realpathSync(at), rest)
    } catch {
      // A link that leads nowhere yet would lead out as soon as something is written to it.
      if (lstatSync(at, { throwIfNoEntry: false })) return ""
      rest = path.join(path.basename(at), rest)
      at = path.dirname(at)
    }
  }
}

function checkPath(given, isEdit) {
  if (String(given).startsWith("~")) deny(`outside the folder: ${given}`)
  const inner = path.relative(root, where(String(given)) || "/")
  if (inner === ".." || inner.startsWith(`..${path.sep}`) || path.isAbsolute(inner)) deny(`outside the folder: ${given}`)
  const parts = `/${inner.split(path.sep).join("/").toLowerCase()}/`
  if (isEdit && rules.held.some((part) => parts.includes(`/${part}/`))) deny(`not to be changed by a run: ${given}`)
}

function checkCommand(command) {
  if (rules.isShell) return
  const words = String(command).trim().split(/ +/)
  const fits = rules.prefixes.some((prefix) => prefix.every((word, at) => word === words[at]))
  if (!PLAIN.test(String(command)) || !fits) deny(`not a command that the rule names: ${command}`)
  const isGit = path.basename(words[0]) === "git"
  if (isGit && words.some((word) => OF_GIT.test(word))) deny(`an option that is not allowed: ${command}`)
}

function check(tool, given) {
  if (!rules.tools.includes(tool)) deny(`not a tool of this run: ${tool}`)
  if (!rules.builtIn.includes(tool)) return
  const paths = [given.filePath, given.path, given.workdir].filter((each) => each !== undefined && each !== null)
  const patch = given.patchText ?? given.patch ?? ""
  for (const found of String(patch).matchAll(PATCHED)) paths.push(found[1].trim())
  for (const each of paths) checkPath(each, EDITS.has(tool))
  if (tool !== "bash") return
  checkCommand(given.command ?? "")
  // A folder inside may be a repository that came with it, and its settings may name programs.
  if (!rules.isShell && where(String(given.workdir ?? root)) !== root) deny(`not the folder of the run: ${given.workdir}`)
}

export const Fence = async () => ({
  config: async (config) => {
    config.permission = rules.permission
    config.agent[rules.agent].permission = rules.permission
  },
  // What a command has no need to know: it is for the model's provider.
  "shell.env": async (_input, output) => {
    for (const name of rules.keys) output.env[name] = ""
  },
  "tool.execute.before": async (input, output) => check(input.tool, output.args ?? {}),
})
