package test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/weir-proxy/weir/test/await"
)

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
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &terminal{t: t, pty: pty}
	m.resize(width, height)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err := unix.IoctlSetWinsize(int(t.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		t.t.Fatal(err)
	}
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
