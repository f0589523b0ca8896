package redisstore

import (
	"maps"
	"strings"
)

// parts are those of the scripts of one algorithm: what all of them have; what takes
// requests of one claim, or of many; and what knows all about it.
type parts struct{ common, one, many, plain, kind string }

// general begins a script that goes straight on where nothing is unusual. What others
// need it defines only when it meets them: to define it costs as much as a decision.
func (p parts) general(clock, last string) string {
	box := boxLua
	if p.kind == bucketLua {
		box = ""
	}
	return strings.Join([]string{
		clock, baseLua, limitsLua, p.common, "local function general()", windowsLua, box, decideLua, p.kind, last, "end",
	}, "\n")
}

// several decides requests of several claims each, one after another.
func (p parts) several() string {
	own := sections(p.many)
	if p.kind == bucketLua {
		return weave(strings.Join([]string{own["wait"], answerLua, severalLua}, "\n"), own)
	}
	plain := sections(p.plain)
	maps.Copy(own, plain)
	return weave(strings.Join([]string{
		manyHeadLua, plain[""], "local function others()", manyBoxesLua, own["wait"], answerLua, "return fetch, answer, fits, store", "end", severalBoxesLua,
	}, "\n"), own)
}

// again decides requests of which many are for the same windows.
func (p parts) again() string {
	own := sections(p.many)
	return weave(strings.Join([]string{manyHeadLua, manyBoxesLua, own["wait"], answerLua, againLua}, "\n"), own)
}

// mark begins the lines of Lua that name a section.
const mark = "--@ "

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
