package redisstore

import (
	"maps"
	"slices"
	"strings"
)

// parts are those of the scripts of one algorithm: what all of them have; what takes
// requests of one claim, or of many; and what knows all about it.
type parts struct{ common, one, many, plain, kind string }

// general is what others than the usual need: it is defined only where it is met, because
// to define it costs as much as a decision.
func (p parts) general(last ...string) string {
	box := boxLua
	if p.kind == bucketLua {
		box = ""
	}
	before, windows := last[:len(last)-1], []string{windowsLua, box, decideLua, p.kind, last[len(last)-1], "end"}
	return strings.Join(slices.Concat([]string{"local function general()"}, before, windows), "\n")
}

// straight decides requests of one claim each, on different windows.
func (p parts) straight(clock string) script {
	frame, whole := straightLua, ""
	if p.kind == bucketLua {
		frame, whole = straightBucketLua, wholeLua
	}
	return newScript(clock, baseLua, whole, limitsLua, p.common, p.general(wholeLua, oneLua), weave(frame, sections(p.one)))
}

// lone decides one request of one claim.
func (p parts) lone(clock string) script {
	frame, whole, own := loneLua, "", sections(p.one)
	if p.kind == bucketLua {
		frame, whole = loneBucketLua, wholeLua
	}
	own["limit"] = loneLimitLua
	return newScript(clock, baseLua, whole, p.common, p.general(wholeLua, limitsLua, oneLua), weave(frame, own))
}

// many decides requests of several claims, or several on one window: last says how.
func (p parts) manyOf(clock, last, text string) script {
	return newScript(clock, baseLua, wholeLua, limitsLua, p.common, p.general(last), text)
}

// several decides requests of several claims each, one after another.
func (p parts) several() string {
	own := sections(p.many)
	if p.kind == bucketLua {
		own["begin"] = sections(p.one)["begin"]
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
