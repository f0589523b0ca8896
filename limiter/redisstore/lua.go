package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"math/bits"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
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
			one: []string{"one"}, many: []string{"many_batch", "many_one", "many_several", "many"},
		}
	}
	set := func(file, general string, all ...limiter.Algorithm) family {
		return family{
			algorithms: all, frame: []string{"base", "numbers", "frame", "frame_set"}, algorithm: []string{file}, general: strings.Fields(general),
			one: []string{"one_set"}, many: []string{"many_set"},
		}
	}
	distinct := set("algorithm/distinct", "number_bytes uses general/set general/distinct", limiter.Distinct)
	distinct.frame = append(distinct.frame, "uses")
	const counter, log = "general/counter general/packed_algorithm", "general/packed_algorithm"
	return []family{
		packed(limiter.FixedWindow, counter, "algorithm/fixed_window"),
		packed(limiter.SlidingWindow, counter, "algorithm/sliding_window"),
		packed(limiter.GCRA, counter, "algorithm/gcra"),
		packed(limiter.SlidingLog, log, "algorithm/log", "general/log", "algorithm/sliding_log"),
		packed(limiter.Conversion, "general/conversion "+log, "algorithm/conversion"),
		packed(limiter.Cooldown, log, "algorithm/log", "general/log", "algorithm/cooldown"),
		set("algorithm/token_bucket", "number_bytes general/set general/bucket_read general/bucket_wait general/bucket_write general/bucket_refund", limiter.TokenBucket, limiter.Concurrent),
		distinct,
	}
}

// Lines that begin a part of a file: what only general scripts need, and of that what only
// those need that do more than decide requests. In the script of a shape generalMark stands
// for the function general.
const (
	generalMark = "--@ general\n"
	changeMark  = "--@ change\n"
)

// usual returns the part of f's algorithm that shapes need.
func (f family) usual() string {
	var out strings.Builder
	for _, name := range f.algorithm {
		text, _, _ := strings.Cut(luaFiles(name), generalMark)
		out.WriteString(text)
	}
	return out.String()
}

// rest returns what general scripts need besides, to decide requests and to change keys.
func (f family) rest() (decide, change string) {
	add := func(text string) {
		before, after, _ := strings.Cut(text, changeMark)
		decide, change = decide+before, change+after
	}
	for _, name := range f.algorithm {
		_, text, _ := strings.Cut(luaFiles(name), generalMark)
		add(text)
	}
	for _, name := range f.general {
		add(luaFiles(name))
	}
	return decide, change
}

// shape returns a script of the files of a shape, with generalMark for the function general.
func (f family) shape(files []string) string {
	return luaFiles(f.frame...) + f.usual() + generalMark + luaFiles(files...)
}

// withGeneral puts the function general, which decides what is unusual, in the place of the mark.
// It reads nothing outside of itself: a closure costs 30 ns for each outer local that it
// reads, at each call of the script.
func (f family) withGeneral(shape string) string {
	return strings.Replace(shape, generalMark, "local function general(NOW)\n"+general(f.deciding())+luaFiles("general/request")+"end\n", 1)
}

// general returns a text that knows algorithms, by their definitions.
func general(definitions ...string) string {
	return luaFiles("base", "numbers", "frame", "general/windows", "general/packed", "general/decide") + strings.Join(definitions, "")
}

// deciding defines the algorithms of f, if they are asked for, as far as requests need it.
func (f family) deciding() string {
	decide, _ := f.rest()
	return f.definition(decide)
}

// changing defines all of the algorithms of f, if they are asked for.
func (f family) changing() string {
	decide, change := f.rest()
	return f.definition(decide + change)
}

func (f family) definition(rest string) string {
	if f.isPacked() { // the general half of the others reads keys in another way
		rest = luaFiles("struct") + f.usual() + rest
	}
	var asked, enter []string
	for _, a := range f.algorithms {
		asked = append(asked, fmt.Sprintf("asked_for[%d]", a))
		enter = append(enter, fmt.Sprintf("algorithms[%d] = functions\n", a))
	}
	return "if " + strings.Join(asked, " or ") + " then\n" + rest + strings.Join(enter, "") + "end\n"
}

func (f family) isPacked() bool { return isPacked(f.algorithms[0]) }

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

// A script is a text and the hash by which Redis remembers it.
type script struct {
	text, hash string
	call       string // what begins a command that runs it, as it is sent
}

func newScript(parts ...string) script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) // the name Redis gives it, no secret
	hash := hex.EncodeToString(sum[:])
	return script{text: text, hash: hash, call: string(wire.AppendBulk(wire.AppendBulk(nil, "EVALSHA"), hash))}
}

// scripts are the texts as Redis runs them.
type scripts struct {
	one  [limiter.NumAlgorithms]script // of one algorithm: for one request of one claim
	many [limiter.NumAlgorithms]script // of one algorithm: for several requests, or several claims
	take script                        // for whatever else is asked
	peek script

	refund, renew, grant, reset, ban, report, inspect, note, returnNoted, unnote, confirm script
}

func newScripts(clock, prefix string) scripts {
	channel := "local FREED = " + quote(invalidationChannel(prefix))
	var deciding, changing []string
	for _, f := range families() {
		deciding, changing = append(deciding, f.deciding()), append(changing, f.changing())
	}
	command := func(definitions []string, files ...string) script {
		return newScript(clock, setNow, channel, general(definitions...), luaFiles(files...))
	}
	change := func(files ...string) script {
		return command(changing, append([]string{"general/publish_change"}, files...)...)
	}
	s := scripts{
		take: command(deciding, "number_bytes", "general/note", "command/take"), peek: command(deciding, "command/peek"), inspect: command(changing, "command/inspect"),
		refund: change("command/refund"), renew: change("command/renew"), grant: change("command/grant"),
		reset: change("command/reset"), ban: change("command/ban"), report: change("number_bytes", "command/report"),
		note: command(nil, "number_bytes", "general/note", "command/note"), returnNoted: change("number_bytes", "general/note", "command/return"),
		unnote: command(nil, "number_bytes", "general/note", "command/unnote"), confirm: change("command/confirm"),
	}
	for _, f := range families() {
		one := newScript(clock, setNow, f.withGeneral(inline(f.shape(f.one))))
		many := newScript(clock, setNow, f.withGeneral(inline(f.shape(f.many))))
		for _, a := range f.algorithms {
			s.one[a], s.many[a] = one, many
		}
	}
	return s
}

// choose returns the fastest script that takes what p asks for.
func (s *scripts) choose(p *payload) *script {
	a := bits.TrailingZeros16(p.algorithms)
	switch {
	case bits.OnesCount16(p.algorithms) != 1, len(p.follows)+len(p.notes) > 0, p.repeated && !isPacked(limiter.Algorithm(a)):
		return &s.take
	case p.windowCount == 1 && !p.repeated:
		return &s.one[a]
	}
	return &s.many[a]
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

// onceCmd is a command that the client never sends again: after a timeout it is
// not known whether Redis ran it, and running it twice would count twice.
type onceCmd struct{ *redis.Cmd }

// NoRetry keeps a client from sending the command a second time.
func (onceCmd) NoRetry() bool { return true }

// runner is the part of a client that a store needs.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run has Redis run s once: by its hash, and by its text if Redis does not know
// the hash, for then nothing ran the first time.
func (s *script) run(ctx context.Context, r runner, keys []string, args []any) (any, error) {
	val, err := s.send(ctx, r, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, r, "eval", s.text, keys, args)
	}
	return val, err
}

func (s *script) send(ctx context.Context, r runner, verb, what string, keys []string, args []any) (any, error) {
	cmd := s.command(ctx, verb, what, keys, args)
	err := r.Process(ctx, cmd)
	return cmd.Val(), err
}

func (s *script) command(ctx context.Context, verb, what string, keys []string, args []any) onceCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return onceCmd{cmd}
}
