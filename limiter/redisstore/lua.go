package redisstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// setNow follows the clock of each script.
const setNow = "local NOW = clock()"

//go:embed lua
var luaFolder embed.FS

// luaFiles returns the texts of files of the folder lua, one after another. Each is Lua by
// itself.
func luaFiles(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		text, err := luaFolder.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		out.Write(text)
	}
	return out.String()
}

// A family lists the files of algorithms that differ in nothing but their number.
type family struct {
	algorithms []limiter.Algorithm
	frame      []string // what its shapes and its algorithm share
	algorithm  []string // each in two parts: for shapes, and what only general scripts need
	general    []string // what else general scripts need
	one, many  []string // the shapes
}

func families() []family {
	packed := func(a limiter.Algorithm, general string, files ...string) family {
		return family{
			algorithms: []limiter.Algorithm{a}, frame: []string{"base", "struct", "frame"}, algorithm: files, general: strings.Fields(general),
			one: []string{"one"}, many: []string{"many_batch", "many_request", "many"},
		}
	}
	set := func(file, general string, all ...limiter.Algorithm) family {
		return family{
			algorithms: all, frame: []string{"base", "numbers", "frame", "frame_set"}, algorithm: []string{file}, general: strings.Fields(general),
			one: []string{"one_set"}, many: []string{"many_set"},
		}
	}
	const counter, log = "general/counter general/packed_algorithm", "general/packed_algorithm"
	return []family{
		packed(limiter.FixedWindow, counter, "algorithm/fixed_window"),
		packed(limiter.SlidingWindow, counter, "algorithm/sliding_window"),
		packed(limiter.GCRA, counter, "algorithm/gcra"),
		packed(limiter.SlidingLog, log, "algorithm/log", "algorithm/sliding_log"),
		packed(limiter.Cooldown, log, "algorithm/log", "algorithm/cooldown"),
		set("algorithm/token_bucket", "general/set general/bucket_read general/bucket_write general/bucket_refund", limiter.TokenBucket, limiter.Concurrent),
		set("algorithm/distinct", "general/set general/distinct", limiter.Distinct),
	}
}

// generalMark is the line that ends the part of a file that shapes need. In a shape's script
// it stands for the function general.
const generalMark = "--@ general\n"

// parts returns the parts of the files of f's algorithm, for shapes and for general scripts.
func (f family) parts() (usual, rest string) {
	for _, name := range f.algorithm {
		before, after, _ := strings.Cut(luaFiles(name), generalMark)
		usual, rest = usual+before, rest+after
	}
	return usual, rest
}

// shape returns a script of the files of a shape, with generalMark for the function general.
func (f family) shape(files []string) string {
	usual, _ := f.parts()
	return luaFiles(f.frame...) + usual + generalMark + luaFiles(files...)
}

// withGeneral puts the function general, which decides what is unusual, in the place of the mark.
// It reads nothing outside of itself: a closure costs 30 ns for each outer local that it
// reads, at each call of the script.
func (f family) withGeneral(shape string) string {
	return strings.Replace(shape, generalMark, "local function general(NOW)\n"+general(f)+luaFiles("general/request")+"end\n", 1)
}

// general returns what decides whatever is asked of families, of which it defines those that
// are asked for.
func general(families ...family) string {
	text := luaFiles("base", "numbers", "number_bytes", "frame", "general/windows", "general/packed", "general/decide")
	for _, f := range families {
		usual, rest := f.parts()
		if f.one[0] == "one" {
			rest = luaFiles("struct") + usual + rest
		} else {
			rest = ""
		}
		var asked, enter []string
		for _, a := range f.algorithms {
			asked = append(asked, fmt.Sprintf("asked_for[%d]", a))
			enter = append(enter, fmt.Sprintf("algorithms[%d] = functions\n", a))
		}
		text += "if " + strings.Join(asked, " or ") + " then\n" + rest + luaFiles(f.general...) + strings.Join(enter, "") + "end\n"
	}
	return text
}

var (
	sectionBegin = regexp.MustCompile(`^local function (\w+)\(\)\n$`)
	sectionLine  = regexp.MustCompile(`^local function (\w+)\(\) (.*) end\n$`)
	sectionCall  = regexp.MustCompile(`^( *)(\w+)\(\)\n$`)
)

// inline puts the body of each section, which is a function without parameters, in the places of the lines
// that call it, and leaves the functions out. The text does the same without that, but slower.
func inline(text string) string {
	bodies, name := map[string]string{}, ""
	var out strings.Builder
	for line := range strings.Lines(text) {
		if begin := sectionBegin.FindStringSubmatch(line); begin != nil {
			name, bodies[begin[1]] = begin[1], ""
		} else if whole := sectionLine.FindStringSubmatch(line); whole != nil {
			bodies[whole[1]] = "  " + whole[2] + "\n"
		} else if name != "" && line == "end\n" {
			name = ""
		} else if name != "" {
			bodies[name] += expand(line, bodies)
		} else {
			out.WriteString(expand(line, bodies))
		}
	}
	return out.String()
}

// expand returns line, or the body that it calls, indented as it is.
func expand(line string, bodies map[string]string) string {
	called := sectionCall.FindStringSubmatch(line)
	if called == nil {
		return line
	}
	body, known := bodies[called[2]]
	if !known {
		return line
	}
	out := called[1] + "do\n"
	for line := range strings.Lines(body) {
		out += called[1] + line
	}
	return out + called[1] + "end\n"
}
