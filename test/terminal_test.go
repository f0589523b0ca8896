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
func (m *terminal) resize(width, height int) {
	m.t.Helper()
	m.mu.Lock()
	m.width, m.height = width, height
	m.clear()
	m.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(m.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *terminal) clear() {
	m.cells = make([][]rune, m.height)
	for y := range m.cells {
		m.cells[y] = []rune(strings.Repeat(" ", m.width))
	}
}

// send sends keys to the program.
func (m *terminal) send(keys string) {
	m.t.Helper()
	if _, err := m.pty.WriteString(keys); err != nil {
		m.t.Fatal(err)
	}
}

// waitForText waits until all these texts are on the screen.
func (m *terminal) waitForText(texts ...string) {
	m.t.Helper()
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the screen:\n%s", m.screen())
		}
	}()
	for _, text := range texts {
		await.Until(m.t, "the screen shows "+strconv.Quote(text), func() bool { return strings.Contains(m.screen(), text) })
	}
}

// screen is what there is to see, line by line.
func (m *terminal) screen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for _, line := range m.cells {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	return strings.Join(lines, "\n")
}

// readOutput draws what the program writes, until it ends.
func (m *terminal) readOutput() {
	buffer := make([]byte, 4096)
	for {
		n, err := m.pty.Read(buffer)
		m.mu.Lock()
		m.rest = append(m.rest, buffer[:n]...)
		for m.step() {
		}
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// step takes one letter or sequence; it reports false when there is no whole one.
func (m *terminal) step() bool {
	if len(m.rest) == 0 {
		return false
	}
	if m.rest[0] == '\x1b' {
		return m.sequence()
	}
	if !utf8.FullRune(m.rest) {
		return false
	}
	r, n := utf8.DecodeRune(m.rest)
	m.rest = m.rest[n:]
	switch {
	case r == '\r':
		m.x = 0
	case r == '\n':
		m.y++
	case r >= ' ' && m.y < m.height && m.x < m.width:
		m.cells[m.y][m.x] = r
		m.x++
	}
	return true
}

// sequence takes one that begins with ESC: of a CSI one (ECMA-48), where the cursor goes and what is
// erased is done, and colours and modes are left out.
func (m *terminal) sequence() bool {
	if len(m.rest) < 2 {
		return false
	}
	if m.rest[1] != '[' { // a charset is chosen with one letter more
		n := 2
		if strings.IndexByte("()", m.rest[1]) >= 0 {
			n = 3
		}
		if len(m.rest) < n {
			return false
		}
		m.rest = m.rest[n:]
		return true
	}
	for i := 2; i < len(m.rest); i++ {
		if m.rest[i] >= '@' && m.rest[i] <= '~' {
			m.control(m.rest[i], strings.Split(string(m.rest[2:i]), ";"))
			m.rest = m.rest[i+1:]
			return true
		}
	}
	return false
}

func (m *terminal) control(what byte, parameters []string) {
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
		m.y, m.x = number(0)-1, number(1)-1
	case 'J':
		m.clear()
	case 'K':
		for x := m.x; m.y < m.height && x < m.width; x++ {
			m.cells[m.y][x] = ' '
		}
	case 'C':
		m.x += number(0)
	}
}
