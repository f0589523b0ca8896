package redisstore

import (
	"embed"
	"maps"
	"slices"
	"strings"
)

//go:embed lua
var luaFiles embed.FS

// luaFile returns the text of a file of the folder lua.
func luaFile(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// parts are those of the scripts of one algorithm: what all of them have; what takes
// requests of one claim, or of many; how keys are read; what reads requests of many claims
// at once; and what knows all about it.
type parts struct{ common, one, many, keys, plain, kind string }

// logged reports whether windows are three keys, of which one is a sorted set.
func (p parts) logged() bool { return p.keys == luaFile("keys_bucket") }

// general is what others than the usual need: it is defined only where it is met, because
// to define it costs as much as a decision.
func (p parts) general(last ...string) string {
	box := luaFile("general/box")
	if p.logged() {
		box = ""
	}
	before, windows := last[:len(last)-1], []string{luaFile("general/windows"), box, luaFile("general/decide"), p.kind, last[len(last)-1], "end\n"}
	return strings.Join(slices.Concat([]string{"local function general()"}, before, windows), "\n")
}

// straight decides requests of one claim each, on different windows.
func (p parts) straight(clock string) script {
	own := pieces(p.keys, p.one)
	before, general := "", []string{luaFile("whole"), luaFile("one")}
	if p.logged() {
		before, general = luaFile("whole"), general[1:]
	}
	own["general"] = p.general(general...)
	return newScript(clock, luaFile("base"), before, luaFile("limits"), p.common, weave(luaFile("straight"), own))
}

// lone decides one request of one claim.
func (p parts) lone(clock string) script {
	own := pieces(p.keys, p.one)
	before, general := "", []string{luaFile("whole"), luaFile("limits"), luaFile("one")}
	if p.logged() {
		before, general = luaFile("whole"), general[1:]
	}
	own["limit"], own["general"] = luaFile("lone_limit"), p.general(general...)
	return newScript(clock, luaFile("base"), before, p.common, weave(luaFile("lone"), own))
}

// several decides requests of several claims each, one after another.
func (p parts) several(clock string) script {
	own := pieces(p.keys, p.one, p.plain, p.many)
	own["general"] = p.general(luaFile("ones"))
	if p.logged() {
		own["answer"] = luaFile("answer")
		return p.weave(clock, own, own["wait"], luaFile("several"))
	}
	own["others"] = strings.Join([]string{"local function others()", luaFile("many_boxes"), own["wait"], luaFile("answer"), "return fetch, answer, fits, store", "end\n"}, "\n")
	return p.weave(clock, own, luaFile("many_head"), sections(p.plain)[""], luaFile("several_boxes"))
}

// again decides requests of which many are for the same windows.
func (p parts) again(clock string) script {
	if p.logged() { // a bucket merges what comes at once
		return newScript(clock, luaFile("base"), luaFile("whole"), luaFile("limits"), luaFile("general/windows"), luaFile("general/decide"), p.kind, luaFile("command/take"))
	}
	own := pieces(p.plain, p.many)
	own["general"] = p.general(luaFile("command/take"))
	return p.weave(clock, own, luaFile("many_head"), luaFile("many_boxes"), own["wait"], luaFile("answer"), luaFile("again"))
}

// weave makes a script of what all have and of texts that name sections.
func (p parts) weave(clock string, sections map[string]string, texts ...string) script {
	return newScript(clock, luaFile("base"), luaFile("whole"), luaFile("limits"), p.common, weave(strings.Join(texts, "\n"), sections))
}

// mark begins the lines of Lua that name a section.
const mark = "--@ "

// pieces are those that all scripts have, and the sections of texts.
func pieces(texts ...string) map[string]string {
	all := sections(luaFile("pieces"))
	for _, t := range texts {
		maps.Copy(all, sections(t))
	}
	return all
}

// sections are those of text by their names, each without the line that begins it, which
// is not indented as those that use one are.
func sections(text string) map[string]string {
	all, name := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if next, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), mark); begins {
			name = next
			continue
		}
		all[name] += line
	}
	return all
}

// weave puts sections in the places of the lines of text that name them.
func weave(text string, sections map[string]string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if name, marked := strings.CutPrefix(strings.TrimSpace(line), mark); marked {
			line = weave(sections[name], sections)
		}
		out.WriteString(line)
	}
	return out.String()
}
