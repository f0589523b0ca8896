// Package scripts makes the Lua that Redis runs of the files of the folder lua: redisstore sends it, and the command in
// that folder prints it.
//
// A script is files one after another, each of which is Lua by itself. Two things are done to them: functions that the
// script never calls are left out, and in scripts that only decide requests of one algorithm the functions without
// parameters are inlined.
package scripts

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-proxy/weir/limiter"
)

// A Source has what scripts are made of.
type Source struct {
	Files   fs.FS  // the folder lua
	Clock   string // Lua that defines the function clock; empty: the time of Redis
	Channel string // on which changes are published
	Plain   bool   // nothing is inlined, for tests

	// CrossSlot makes scripts for Redis 7 that take keys of several slots of one master: see lua/cross_slot_keys.lua.
	CrossSlot bool
}

// A family is what algorithms have in common that differ in nothing but their number.
type family struct {
	algorithms []limiter.Algorithm
	files      string // of the algorithm
	general    string // what general scripts need besides
}

// families returns all families: first the counters, each of which is the file with its name.
func families() (all []family) {
	one := func(a limiter.Algorithm) []limiter.Algorithm { return []limiter.Algorithm{a} }
	for a := range limiter.NumAlgorithms {
		if a.IsPacked() && !a.HasLog() {
			all = append(all, family{one(a), "algorithm/" + a.String(), "general/counter general/packed_algorithm"})
		}
	}
	const log = "general/packed_algorithm"
	return append(all, []family{
		{one(limiter.SlidingLog), "algorithm/log algorithm/log_entries algorithm/sliding_log", log},
		{one(limiter.Conversion), "algorithm/conversion algorithm/conversion_buckets", log},
		{one(limiter.Cooldown), "algorithm/log algorithm/log_entries algorithm/cooldown", log},
		{
			[]limiter.Algorithm{limiter.TokenBucket, limiter.Concurrent}, "algorithm/token_bucket",
			"general/set zset general/bucket_read general/bucket_wait general/bucket_write general/bucket_refund",
		},
		{one(limiter.Distinct), "algorithm/distinct_uses algorithm/distinct", "general/set algorithm/distinct_uses general/distinct"},
	}...)
}

// isPacked reports whether the algorithms of f have packed strings.
func (f family) isPacked() bool { return f.algorithms[0].IsPacked() }

// Text returns a script by its name: one or many, which decide requests of one algorithm, as lua/one.lua and
// lua/many.lua say; or a file of lua/command, for all algorithms that have a bit; or redisson/FILE for limiters of
// Redisson 3.13.3 and later, redisson_window/FILE for earlier ones, which count a window.
func (s Source) Text(name string, algorithms uint16) (string, error) {
	clock := s.Clock
	if clock == "" {
		clock = s.read("clock")
	}
	begin := s.acrossSlots("keys") + strings.TrimSuffix(clock, "\n") + "\nlocal NOW = clock()\n"
	channel := "local FREED = " + quote(s.Channel) + "\n"
	folder, file, isRedisson := strings.Cut(name, "/")
	text := ""
	switch {
	case (name == "one" || name == "many") && bits.OnesCount16(algorithms) == 1:
		return begin + s.fast(name, algorithms), nil
	case !isRedisson:
		text, name = s.general(algorithms)+s.acrossSlots("exists")+s.read("general/publish_change general/note"), "command/"+name
	case folder == "redisson":
		text = s.read("prelude redisson/limiter redisson/pack zset entries redisson/count redisson/log redisson/decide")
	case folder == "redisson_window":
		text, name = s.read("prelude redisson/limiter redisson/window redisson/decide"), "redisson/"+file
	}
	last, err := fs.ReadFile(s.Files, name+".lua")
	return begin + channel + used(text+string(last)), err
}

// fast returns a script that decides usual requests. The function general decides the others; it stands on top, where
// it reads nothing outside of itself: a closure costs 30 ns for each outer local that it reads, at each call of the
// script.
func (s Source) fast(name string, algorithms uint16) string {
	all := families()
	f, more := all[slices.IndexFunc(all, func(f family) bool { return f.has(algorithms) })], "struct "
	if !f.isPacked() {
		more, name = "limit_set ", name+"_set"
	}
	files := map[string]string{
		"one":      "one decide_claim one_decide",
		"one_set":  "one_set decide_claim one_decide",
		"many":     "many_limits many_batch decide_claim many_one many_several many",
		"many_set": "many_limits many_set many",
	}[name]
	text := s.read("prelude") + s.acrossSlots("mget") + s.read("limit "+more+f.files+" "+files)
	if !s.Plain {
		text = inline(text)
	}
	if !f.isPacked() {
		text = s.acrossSlots("exists") + text
	}
	return "local function general(NOW)\n" + used(s.general(algorithms)+s.read("general/request")) + "end\n" + used(text)
}

// general returns what general scripts begin with, which know the algorithms that have a bit.
func (s Source) general(algorithms uint16) string {
	text := s.read("prelude") + s.acrossSlots("mget") + s.read("limit general/windows entries general/packed general/decide")
	for _, f := range families() {
		if !f.has(algorithms) {
			continue
		}
		var asked, defined string
		for _, a := range f.algorithms {
			asked += fmt.Sprintf(" or asked_for[%d]", a)
			defined += fmt.Sprintf("algorithms[%d] = functions\n", a)
		}
		text += "if" + strings.TrimPrefix(asked, " or") + " then\n"
		if f.isPacked() { // the others read keys in another way
			text += s.read("struct " + f.files)
		}
		text += s.read(f.general) + defined + "end\n"
	}
	return text
}

// has reports whether an algorithm of f has a bit.
func (f family) has(algorithms uint16) bool {
	return slices.ContainsFunc(f.algorithms, func(a limiter.Algorithm) bool { return algorithms>>a&1 == 1 })
}

// acrossSlots returns a part of scripts for keys of several slots; nothing if s makes others.
func (s Source) acrossSlots(part string) string {
	if !s.CrossSlot {
		return ""
	}
	return s.read("cross_slot_" + part)
}

// read returns the texts of files, one after another.
func (s Source) read(names string) string {
	var out strings.Builder
	for _, name := range strings.Fields(names) {
		text, err := fs.ReadFile(s.Files, name+".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		out.Write(text)
	}
	return out.String()
}

// A chunk of a text is a function with the comment above it, or what stands between two functions.
// Its parts are bytes because lines are appended to them: a script has a thousand.
type chunk struct {
	name   string // of the function; empty for what is none
	text   []byte
	body   []byte
	inline bool // it has no parameters, and returns nothing
}

var head = regexp.MustCompile(`^(?:local function |function functions\.)(\w+)\((.*?)\)(.*)\n$`)

// split splits text into chunks.
func split(text string) (all []chunk) {
	var comments string
	var c chunk
	for line := range strings.Lines(text) {
		switch {
		case c.name != "" && line != "end\n":
			c.text, c.body = append(c.text, line...), append(c.body, line...)
		case c.name != "":
			all, c = append(all, c.end(line)), chunk{}
		case strings.HasPrefix(line, "--"):
			comments += line
		case strings.HasPrefix(line, "local function "), strings.HasPrefix(line, "function functions."):
			found := head.FindStringSubmatch(line)
			all, c = append(all, c), chunk{name: found[1], text: []byte(comments + line), inline: found[2] == ""}
			if body, one := strings.CutSuffix(found[3], " end"); one {
				c.body = []byte(" " + body + "\n")
				all, c = append(all, c.end("")), chunk{}
			}
			comments = ""
		default:
			c.text, c.body, comments = append(append(c.text, comments...), line...), append(c.body, line...), ""
		}
	}
	return append(all, c)
}

// end returns c, whose last line is line.
func (c chunk) end(line string) chunk {
	c.text = append(c.text, line...)
	c.inline = c.inline && !bytes.Contains(c.body, []byte("return "))
	return c
}

// inline puts the bodies of functions without parameters in place of the lines that call them. The text does the
// same without that, but slower: a call that passes values costs as much as the work that it does. A function that
// returns something stays one.
func inline(text string) string {
	bodies := map[string]string{}
	expand := func(text string) string {
		var out strings.Builder
		for line := range strings.Lines(text) {
			name := strings.TrimLeft(line, " ")
			indent := line[:len(line)-len(name)]
			if body, known := bodies[strings.TrimSuffix(name, "()\n")]; known {
				line = indent + "do\n" + indent + strings.ReplaceAll(body, "\n", "\n"+indent) + "end\n"
			}
			out.WriteString(line)
		}
		return out.String()
	}
	for _, c := range split(text) {
		if c.inline {
			bodies[c.name] = expand(string(c.body))
		}
	}
	return expand(text)
}

// used returns text without the functions that it never calls.
func used(text string) string {
	chunks, bodies, known := split(text), map[string]string{}, map[string]bool{}
	for _, c := range chunks {
		bodies[c.name] += string(c.body)
	}
	for pending := []string{""}; len(pending) > 0; pending = pending[1:] {
		for line := range strings.Lines(bodies[pending[0]]) {
			line, _, _ = strings.Cut(line, "--")
			if names, values, _ := strings.Cut(line, "="); strings.HasPrefix(names, "local ") {
				line = values // to declare is not to call
			}
			for _, word := range strings.FieldsFunc(line, isBetweenWords) {
				if !known[word] {
					known[word], pending = true, append(pending, word)
				}
			}
		}
	}
	var out strings.Builder
	for _, c := range chunks {
		if c.name == "" || known[c.name] {
			out.Write(c.text)
		}
	}
	return out.String()
}

func isBetweenWords(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// quote writes s as a Lua string, whatever it holds.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03d`, c)
	}
	b.WriteByte('"')
	return b.String()
}
