package redisstore

import (
	"maps"
	"slices"
	"strings"
)

// parts are those of the scripts of one algorithm: what all of them have; what takes
// requests of one claim, or of many; how keys are read; what reads requests of many claims
// at once; and what knows all about it.
type parts struct{ common, one, many, keys, plain, kind string }

// logged reports whether windows are three keys, of which one is a sorted set.
func (p parts) logged() bool { return p.keys == keysBucketLua }

// general is what others than the usual need: it is defined only where it is met, because
// to define it costs as much as a decision.
func (p parts) general(last ...string) string {
	box := boxLua
	if p.logged() {
		box = ""
	}
	before, windows := last[:len(last)-1], []string{windowsLua, box, decideLua, p.kind, last[len(last)-1], "end\n"}
	return strings.Join(slices.Concat([]string{"local function general()"}, before, windows), "\n")
}

// straight decides requests of one claim each, on different windows.
func (p parts) straight(clock string) script {
	own := pieces(p.keys, p.one)
	before, general := "", []string{wholeLua, oneLua}
	if p.logged() {
		before, general = wholeLua, general[1:]
	}
	own["general"] = p.general(general...)
	return newScript(clock, baseLua, before, limitsLua, p.common, weave(straightLua, own))
}

// lone decides one request of one claim.
func (p parts) lone(clock string) script {
	own := pieces(p.keys, p.one)
	before, general := "", []string{wholeLua, limitsLua, oneLua}
	if p.logged() {
		before, general = wholeLua, general[1:]
	}
	own["limit"], own["general"] = loneLimitLua, p.general(general...)
	return newScript(clock, baseLua, before, p.common, weave(loneLua, own))
}

// several decides requests of several claims each, one after another.
func (p parts) several(clock string) script {
	own := pieces(p.keys, p.one, p.plain, p.many)
	own["general"] = p.general(onesLua)
	if p.logged() {
		own["answer"] = answerLua
		return p.weave(clock, own, own["wait"], severalLua)
	}
	own["others"] = strings.Join([]string{"local function others()", manyBoxesLua, own["wait"], answerLua, "return fetch, answer, fits, store", "end\n"}, "\n")
	return p.weave(clock, own, manyHeadLua, sections(p.plain)[""], severalBoxesLua)
}

// again decides requests of which many are for the same windows.
func (p parts) again(clock string) script {
	if p.logged() { // a bucket merges what comes at once
		return newScript(clock, baseLua, wholeLua, limitsLua, windowsLua, decideLua, p.kind, takeLua)
	}
	own := pieces(p.plain, p.many)
	own["general"] = p.general(takeLua)
	return p.weave(clock, own, manyHeadLua, manyBoxesLua, own["wait"], answerLua, againLua)
}

// weave makes a script of what all have and of texts that name sections.
func (p parts) weave(clock string, sections map[string]string, texts ...string) script {
	return newScript(clock, baseLua, wholeLua, limitsLua, p.common, weave(strings.Join(texts, "\n"), sections))
}

// mark begins the lines of Lua that name a section.
const mark = "--@ "

// pieces are those that all scripts have, and the sections of texts.
func pieces(texts ...string) map[string]string {
	all := sections(piecesLua)
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
