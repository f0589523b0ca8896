// Package scripts makes the Lua that Redis runs of the files of the folder lua: redisstore sends it, and the command in
// that folder prints it.
//
// A script is files one after another, each of which is Lua by itself. Two things are done to them: functions that the
// script never calls are left out, and in scripts that only decide requests of one algorithm the functions without
// parameters are inlined.
package scripts

import (
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// A Source has what scripts are made of.
type Source struct {
	Files   fs.FS  // the folder lua
	Clock   string // Lua that defines the function clock; empty: the time of Redis
	Channel string // on which changes are published
	Plain   bool   // nothing is inlined, for tests
}

// A family is what algorithms have in common that differ in nothing but their number.
type family struct {
	algorithms []limiter.Algorithm
	isPacked   bool
	files      string // of the algorithm
	general    string // what general scripts need besides
}

func families() []family {
	one := func(a limiter.Algorithm) []limiter.Algorithm { return []limiter.Algorithm{a} }
	const log, counter = "general/packed_algorithm", "general/counter general/packed_algorithm"
	return []family{
		{one(limiter.FixedWindow), true, "algorithm/fixed_window", counter},
		{one(limiter.SlidingWindow), true, "algorithm/sliding_window", counter},
		{one(limiter.GCRA), true, "algorithm/gcra", counter},
		{one(limiter.SlidingLog), true, "algorithm/log algorithm/log_entries algorithm/sliding_log", log},
		{one(limiter.Conversion), true, "algorithm/conversion algorithm/conversion_buckets", log},
		{one(limiter.Cooldown), true, "algorithm/log algorithm/log_entries algorithm/cooldown", log},
		{
			[]limiter.Algorithm{limiter.TokenBucket, limiter.Concurrent}, false, "algorithm/token_bucket",
			"general/set general/bucket_read general/bucket_wait general/bucket_write general/bucket_refund",
		},
		{one(limiter.Distinct), false, "algorithm/distinct_uses algorithm/distinct", "general/set algorithm/distinct_uses general/distinct"},
	}
}

// Text returns a script by its name: one or many, which decide requests of one algorithm, as lua/one.lua and
// lua/many.lua say; or a file of lua/command, for all algorithms that have a bit; or redisson/FILE for limiters of
// Redisson 3.13.3 and later, redisson_window/FILE for earlier ones, which count a window.
func (s Source) Text(name string, algorithms uint16) (string, error) {
	clock := s.Clock
	if clock == "" {
		clock = s.read("clock")
	}
	begin := strings.TrimSuffix(clock, "\n") + "\nlocal NOW = clock()\n"
	channel := "local FREED = " + quote(s.Channel) + "\n"
	folder, file, isRedisson := strings.Cut(name, "/")
	text := ""
	switch {
	case (name == "one" || name == "many") && bits.OnesCount16(algorithms) == 1:
		return begin + s.fast(name, algorithms), nil
	case !isRedisson:
		text, name = s.general(algorithms)+s.read("general/publish_change general/note"), "command/"+name
	case folder == "redisson":
		text = s.read("prelude redisson/limiter redisson/pack redisson/count redisson/log redisson/decide")
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
	files := map[string]string{"one": "one", "many": "many_batch many_one many_several many"}[name]
	var f family
	for _, f = range families() {
		if f.has(algorithms) {
			break
		}
	}
	more := "struct "
	if !f.isPacked {
		more, files = "limit_set ", name+"_set"
	}
	text := s.read("prelude limit " + more + f.files + " " + files)
	if !s.Plain {
		text = inline(text)
	}
	return "local function general(NOW)\n" + used(s.general(algorithms)+s.read("general/request")) + "end\n" + used(text)
}

// general returns what general scripts begin with, which know the algorithms that have a bit.
func (s Source) general(algorithms uint16) string {
	text := s.read("prelude limit general/windows general/packed general/decide")
	for _, f := range families() {
		if !f.has(algorithms) {
			continue
		}
		text += "do\n"
		if f.isPacked { // the others read keys in another way
			text += s.read("struct " + f.files)
		}
		text += s.read(f.general)
		for _, a := range f.algorithms {
			text += fmt.Sprintf("algorithms[%d] = functions\n", a)
		}
		text += "end\n"
	}
	return text
}

// has reports whether an algorithm of f has a bit.
func (f family) has(algorithms uint16) bool {
	return slices.ContainsFunc(f.algorithms, func(a limiter.Algorithm) bool { return algorithms>>a&1 == 1 })
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
