package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestCommand_Scripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "scripts",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// Every fault that the loader knows has a file that shows it and the exact words
// that an operator reads.
func TestCommand_CheckPrintsExactlyTheProblems(t *testing.T) {
	const dir = "../proxy/config" // the expected words name files from here
	files, err := filepath.Glob(dir + "/testdata/bad-*.yaml")
	if err != nil || len(files) < 45 {
		t.Fatalf("%d files of bad configurations, want at least 45 (%v)", len(files), err)
	}
	for name, value := range map[string]string{ // that the files speak of
		"SET": "set", "NUMBER": "7", "EMPTY": "", "TRICK": "a\nroutes: []", "DOLLAR": "${SET}",
	} {
		t.Setenv(name, value)
	}
	for i, file := range files {
		if i%max(1, 5/rounds.Of(1)) > 0 { // the loader's own tests have each
			continue
		}
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			want := filetest.Read(t, strings.TrimSuffix(file, ".yaml")+".want")
			code, stdout, stderr := command(t, dir, "check", "testdata/"+name)
			if code != 1 || stdout != string(want) || stderr != "" {
				t.Errorf("exit code %d, stderr %q, stdout\n%swant exit code 1 and stdout\n%s", code, stderr, stdout, want)
			}
		})
	}
}

// command runs weir in dir, which must end by itself, and returns what came of it.
func command(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "weir", args...)
	cmd.Dir = dir
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// The admin port must be known to be asked.
func TestCommand_HealthcheckAsksTheProcess(t *testing.T) {
	t.Parallel()
	admin := redistest.FreeAddr(t)
	dir := t.TempDir()
	config := "upstreams: {demo: echo}\nroutes: [{match: {path: /}, upstream: demo}]\n" +
		"listen: {http: \"127.0.0.1:0\"}\nadmin: {http: \"" + admin + "\"}\n"
	write(t, dir+"/weir.yaml", config)
	w := startWith(t, dir)
	if code, stdout, stderr := command(t, dir, "healthcheck"); code != 0 {
		t.Errorf("healthcheck of a weir that lives exits %d %s %s, want 0", code, stdout, stderr)
	}
	// A file that got broken later is no reason to end a process that serves.
	write(t, dir+"/weir.yaml", "rootes: []\n")
	w.WaitForLog("reload refused", nil)
	if code, stdout, stderr := command(t, dir, "healthcheck", "--admin", admin); code != 0 {
		t.Errorf("healthcheck after a bad edit exits %d %s %s, want 0", code, stdout, stderr)
	}
	write(t, dir+"/weir.yaml", config)
	w.Kill()
	if code, _, stderr := command(t, dir, "healthcheck"); code != 1 || stderr == "" {
		t.Errorf("healthcheck of a weir that is gone exits %d %q, want 1 and a reason", code, stderr)
	}
}

// completionYAML is the configuration whose names shells propose.
const completionYAML = `
keys: {phone: {from: "header:X-Phone", normalize: e164}, ip: client_ip}
routes:
  - {name: sms-send, match: {path: /send}, respond: {body: ok}, limits: [{name: phone, key: phone, rate: 1/1m}, {name: address, key: ip, rate: 1/1m}]}
  - {name: sms-verify, match: {path: /verify}, respond: {body: ok}, limits: [{name: guesses, key: phone, rate: 1/1m}]}
`

// proposals are what fish proposes for lines.
func proposals() map[string]string {
	return map[string]string{
		"weir ch":                        "check",
		"weir check --ag":                "--against",
		"weir check weir.y":              "weir.yaml",
		"weir -c weir.y":                 "weir.yaml",
		"weir --config=weir.y":           "--config=weir.yaml",
		"weir --log-level=w":             "--log-level=warn",
		"weir help push ":                "",
		"weir simulate --format ":        "auto combined common json",
		"weir completion ":               "bash fish man zsh",
		"weir help pu":                   "push",
		"weir keys pl":                   "plan plans",
		"weir keys ban ph":               "phone=",
		"weir keys get phone=1 --limit ": "address guesses phone",
		"weir top --route sms-v":         "sms-verify",
	}
}

// Fish proposes what there is. Where there is no fish, ./test/run has said that it could not install one.
func TestCompletion_Fish(t *testing.T) {
	t.Parallel()
	fish, err := exec.Command("bash", "install", "--found", "fish").Output()
	if err != nil {
		t.Log("no fish here: what it proposes is not known")
		return
	}
	dir := t.TempDir()
	code, script, stderr := command(t, dir, "completion", "fish")
	if code != 0 {
		t.Fatal(stderr)
	}
	filetest.Write(t, script, dir, "weir.fish")
	filetest.Write(t, completionYAML, dir, "weir.yaml")
	program := "source weir.fish\n"
	for line := range proposals() {
		program += "echo '" + line + " =>' (complete -C '" + line + "' | string split -f 1 \\t)\n"
	}
	cmd := exec.Command(strings.TrimSpace(string(fish)), "--no-config", "-c", program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=dumb", "WEIR_ADMIN=127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	for line, proposed := range proposals() {
		if want := strings.TrimSpace(line + " => " + proposed); !slices.Contains(got, want) {
			t.Errorf("fish proposes\n%s\nwant %s", out, want)
		}
	}
}

// On a terminal an operator sees whom two nodes refuse, and unblocks him on both.
func TestTop_UnblocksAKeyFromATerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", "")
	one, other := start(t, config), start(t, config)
	waitForMembership(t, server.Addr, 2)
	one.statuses("p", 3)
	other.statuses("p", 3)
	top := exec.Command("weir", "top", "--admin", one.Admin, "--every", "200ms")
	screen := onTerminal(t, top, 100, 30)
	screen.waitForText("[1 Keys]", "2 nodes", "all serve one config", "sms-send.phone", "5        6")
	screen.send("2")
	screen.waitForText("[2 Limits]", "sms-send.phone  5        6         83.3 %  1/1h")
	screen.send("4")
	screen.waitForText("[4 Nodes]", "leads")
	screen.send("5")
	screen.waitForText("[5 Upstreams]", "2 of 2")
	screen.resize(70, 12)
	screen.waitForText("[5 Upstreams]", "demo")
	screen.send("1r")
	screen.waitForText("Reset ", "Reason")
	screen.send("the phone was lent\r\r")
	screen.waitForText("reset sms-send.phone, on all nodes")
	await.Until(t, "the key passes on the other node", func() bool { return other.send("p") == 200 })
	status, trail := other.get(other.Admin + "/api/v1/audit")
	if status != 200 || !strings.Contains(trail, "the phone was lent") {
		t.Errorf("the audit trail on the other node is %d %s", status, trail)
	}
	screen.send("q")
	if err := top.Wait(); err != nil {
		t.Errorf("top ends with %v", err)
	}
}

// Elsewhere than on a terminal it says what to do, and prints all of it when told to.
func TestTop_WithoutATerminal(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	w.statuses("p", 3)
	code, stdout, stderr := w.admin(t.TempDir(), "top")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "top needs a terminal") || !strings.Contains(stderr, "weir top --once") {
		t.Errorf("top exits %d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = w.admin(t.TempDir(), "top", "--once")
	if code != 0 || stderr != "" {
		t.Errorf("top --once exits %d: %s", code, stderr)
	}
	for _, want := range []string{"1 node; ", "KEYS\n", "sms-send.phone  2        3         66.7 %", "ROUTES\n", "NODES\n", "UPSTREAMS\n", "1 of 1"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("top --once says\n%s\nwant %q in it", stdout, want)
		}
	}
	for args, want := range map[string]string{"--minutes=16": "write 1 to 15", "-n0": "write 1 to 1000", "--rows=1001": "write 1 to 1000", "--every=1ms": "write 200ms or more", "--once --admin=127.0.0.1:1": "--admin"} {
		exit := 2
		if strings.HasPrefix(args, "--once") { // nothing is wrong with what was written
			exit = 1
		}
		if code, _, stderr := command(t, t.TempDir(), append([]string{"top"}, strings.Fields(args)...)...); code != exit || !strings.Contains(stderr, want) {
			t.Errorf("top %s exits %d: %s; want %q", args, code, stderr, want)
		}
	}
}

// A topJSON is a part of what weir top --json prints.
type topJSON struct {
	Away string `json:"redis_unreachable"`
	Top  struct {
		Nodes  []struct{ Node, Said string }
		Limits []struct {
			Route   string
			Limit   string
			Refused struct {
				Total int
				Keys  []struct{ Count int }
			}
		}
	}
	Routes struct{ Routes []struct{ Name string } }
}

// topAsJSON runs weir top --json.
func (w *weir) topAsJSON(args ...string) (got topJSON) {
	w.t.Helper()
	code, stdout, stderr := w.admin(w.t.TempDir(), append([]string{"top", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
		w.t.Fatalf("top --json exits %d: %v %s%s", code, err, stdout, stderr)
	}
	return got
}

// A terminal is a pseudo-terminal and what a program has drawn on it.
type terminal struct {
	t    *testing.T
	pty  *os.File // the side of whoever looks and types
	read sync.WaitGroup

	mu            sync.Mutex // guards what follows
	width, height int
	cells         [][]rune
	x, y          int
	rest          []byte // of a sequence that has not ended
}

// onTerminal starts cmd on a terminal of that size. It ends with the test.
func onTerminal(t *testing.T, cmd *exec.Cmd, width, height int) *terminal {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	check(t, err)
	check(t, unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	check(t, err)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	check(t, err)
	m := &terminal{t: t, pty: pty}
	m.resize(width, height)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(t, cmd.Start())
	tty.Close()
	m.read.Go(m.readOutput)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which may have ended
		_ = cmd.Wait()
		m.read.Wait()
		pty.Close()
	})
	return m
}

// resize gives the terminal another size, of which the program is told.
func (t *terminal) resize(width, height int) {
	t.t.Helper()
	t.mu.Lock()
	t.width, t.height = width, height
	t.clear()
	t.mu.Unlock()
	check(t.t, unix.IoctlSetWinsize(int(t.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}))
}

func (t *terminal) clear() {
	t.cells = make([][]rune, t.height)
	for y := range t.cells {
		t.cells[y] = []rune(strings.Repeat(" ", t.width))
	}
}

// send sends keys to the program.
func (t *terminal) send(keys string) {
	t.t.Helper()
	if _, err := t.pty.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

// waitForText waits until all these texts are on the screen.
func (t *terminal) waitForText(texts ...string) {
	t.t.Helper()
	defer func() {
		if t.t.Failed() {
			t.t.Logf("the screen:\n%s", t.screen())
		}
	}()
	for _, text := range texts {
		await.Until(t.t, "the screen shows "+strconv.Quote(text), func() bool { return strings.Contains(t.screen(), text) })
	}
}

// screen is what there is to see, line by line.
func (t *terminal) screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, line := range t.cells {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	return strings.Join(lines, "\n")
}

// readOutput draws what the program writes, until it ends.
func (t *terminal) readOutput() {
	buffer := make([]byte, 4096)
	for {
		n, err := t.pty.Read(buffer)
		t.mu.Lock()
		t.rest = append(t.rest, buffer[:n]...)
		for t.step() {
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// step takes one letter or sequence; it reports false when there is no whole one.
func (t *terminal) step() bool {
	if len(t.rest) == 0 {
		return false
	}
	if t.rest[0] == '\x1b' {
		return t.sequence()
	}
	if !utf8.FullRune(t.rest) {
		return false
	}
	r, n := utf8.DecodeRune(t.rest)
	t.rest = t.rest[n:]
	switch {
	case r == '\r':
		t.x = 0
	case r == '\n':
		t.y++
	case r >= ' ' && t.y < t.height && t.x < t.width:
		t.cells[t.y][t.x] = r
		t.x++
	}
	return true
}

// sequence takes one that begins with ESC: of a CSI one (ECMA-48), where the cursor goes and what is
// erased is done, and colours and modes are left out.
func (t *terminal) sequence() bool {
	if len(t.rest) < 2 {
		return false
	}
	if t.rest[1] != '[' { // a charset is chosen with one letter more
		n := 2
		if strings.IndexByte("()", t.rest[1]) >= 0 {
			n = 3
		}
		if len(t.rest) < n {
			return false
		}
		t.rest = t.rest[n:]
		return true
	}
	for i := 2; i < len(t.rest); i++ {
		if t.rest[i] >= '@' && t.rest[i] <= '~' {
			t.control(t.rest[i], strings.Split(string(t.rest[2:i]), ";"))
			t.rest = t.rest[i+1:]
			return true
		}
	}
	return false
}

func (t *terminal) control(what byte, parameters []string) {
	number := func(i int) int {
		if i >= len(parameters) {
			return 1
		}
		n, err := strconv.Atoi(parameters[i])
		if err != nil {
			return 1
		}
		return n
	}
	switch what {
	case 'H':
		t.y, t.x = number(0)-1, number(1)-1
	case 'J':
		t.clear()
	case 'K':
		for x := t.x; t.y < t.height && x < t.width; x++ {
			t.cells[t.y][x] = ' '
		}
	case 'C':
		t.x += number(0)
	}
}
