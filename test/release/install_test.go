//go:build install

// Needs root and what test/release/run makes: that builds the packages and the Debian
// system, and runs this.
package release

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const cache = "../.cache"

// A root is a Debian system in a folder.
type root struct {
	t   *testing.T
	dir string
}

func newRoot(t *testing.T) root {
	t.Helper()
	r := root{t, t.TempDir()}
	r.host("tar", "-C", r.dir, "-xf", filepath.Join(cache, "debian.tar"))
	return r
}

// host runs a command on the machine of the test.
func (r root) host(name string, args ...string) string {
	r.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// run runs a line of shell in the system.
func (r root) run(line string) string {
	r.t.Helper()
	return r.host("chroot", r.dir, "sh", "-ec", line)
}

// copied copies a file into the system, and returns where it lies there.
func (r root) copied(pattern string) string {
	r.t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		r.t.Fatalf("%s is %v (%v)", pattern, files, err)
	}
	r.host("cp", files[0], filepath.Join(r.dir, "tmp"))
	return "/tmp/" + filepath.Base(files[0])
}

func (r root) write(path, text string, mode os.FileMode) {
	r.t.Helper()
	path = filepath.Join(r.dir, path)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		r.t.Fatal(err)
	}
}

func (r root) has(want bool, paths ...string) {
	r.t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(filepath.Join(r.dir, path)); (err == nil) != want {
			r.t.Errorf("%s: there: %v, want %v", path, err == nil, want)
		}
	}
}

// A service stands for systemd, which does not run here: it holds the port of weir.socket,
// runs weir.service as the unit says, and does what the scripts of the package ask for.
type service struct {
	root
	socket   *os.File
	url      string
	commands *os.File // a fifo
	done     *os.File
	mu       sync.Mutex
	weir     *exec.Cmd // nil if it does not run
	starts   int
}

func newService(r root) *service {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	s := &service{root: r, url: "http://" + listener.Addr().String()}
	if s.socket, err = listener.(*net.TCPListener).File(); err != nil {
		r.t.Fatal(err)
	}
	listener.Close() // the file is another descriptor of it
	r.run("mkdir -p /run/systemd/system && mkfifo /run/commands /run/done")
	r.run("mv /usr/bin/systemctl /usr/bin/systemctl.real")
	const ask = `#!/bin/sh
case "$*" in
*daemon-reload) ;;
start* | stop* | restart* | try-restart*) echo "$*" >/run/commands; read -r answer </run/done ;;
*) SYSTEMD_OFFLINE=1 exec systemctl.real "$@" ;;
esac
`
	r.write("usr/bin/deb-systemd-invoke", ask, 0o755)
	r.write("usr/bin/systemctl", ask, 0o755)
	s.commands = r.fifo("run/commands")
	s.done = r.fifo("run/done")
	go s.serve()
	r.t.Cleanup(func() {
		s.do("stop weir.socket weir.service")
		s.commands.Close()
		s.done.Close()
		s.socket.Close()
	})
	return s
}

func (r root) fifo(path string) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, path), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// serve does what is written into the fifo, until that is closed.
func (s *service) serve() {
	buf := make([]byte, 1024)
	for {
		n, err := s.commands.Read(buf)
		if err != nil {
			return
		}
		s.do(strings.TrimSpace(string(buf[:n])))
		fmt.Fprintln(s.done, "ok")
	}
}

func (s *service) do(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb, units, _ := strings.Cut(command, " ")
	if !strings.Contains(units, "weir.service") {
		return
	}
	if s.weir != nil && verb != "start" {
		s.weir.Process.Signal(syscall.SIGTERM)
		if err := s.weir.Wait(); err != nil {
			s.t.Errorf("weir ended with %v", err)
		}
		s.weir = nil
	}
	if verb != "stop" && s.weir == nil {
		s.weir = exec.Command("chroot", "--userspec=weir:weir", s.dir, "sh", "-ec", "export LISTEN_PID=$$; exec /usr/bin/weir run -c /etc/weir/weir.yaml")
		s.weir.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LISTEN_FDS=1", "LISTEN_FDNAMES=http"}
		s.weir.ExtraFiles = []*os.File{s.socket}
		if err := s.weir.Start(); err != nil {
			s.t.Errorf("start weir: %v", err)
		}
		s.starts++
	}
}

// status asks for a code for a phone.
func (s *service) status(client *http.Client, phone int64) (int, error) {
	request, err := http.NewRequest(http.MethodPost, s.url+"/v1/sms/send", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-Phone", fmt.Sprintf("+86138%08d", phone))
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// load sends requests until it is stopped: half of the clients keep their connections.
// Each is of another phone, so that all are to be answered 200.
func (s *service) load() (stop func() int64) {
	var group sync.WaitGroup
	var phones, answered atomic.Int64
	over := make(chan struct{})
	for i := range 8 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}, Timeout: 30 * time.Second}
		group.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-over:
					return
				default:
				}
				phone := phones.Add(1)
				if got, err := s.status(client, phone); got != http.StatusOK {
					s.t.Errorf("request %d is answered %d (%v)", phone, got, err)
				}
				answered.Add(1)
			}
		})
	}
	return func() int64 { close(over); group.Wait(); return answered.Load() }
}

// A package is installed, answers 429, is upgraded under load without a lost request and
// without a change of the edited configuration, removed and purged.
func TestInstall_Deb(t *testing.T) {
	r := newRoot(t)
	s := newService(r)
	first, next := r.copied(cache+"/release/1/weir_0.1.0_amd64.deb"), r.copied(cache+"/release/next/weir_0.1.1_amd64.deb")
	r.run("dpkg -i " + first)
	r.has(true, "etc/weir/weir.yaml", "etc/weir/environment", "usr/share/man/man1/weir.1.gz", "usr/share/doc/weir/copyright", "usr/share/doc/weir/LICENSES",
		"etc/systemd/system/sockets.target.wants/weir.socket", "etc/systemd/system/multi-user.target.wants/weir.service")
	if got := r.run("weir version; weir check /etc/weir/weir.yaml; getent passwd weir; stat -c %a /etc/weir/environment; bash -c '. /usr/share/bash-completion/completions/weir; complete -p weir'"); !strings.Contains(got, "weir v0.1.0 (commit ") ||
		!strings.Contains(got, "/etc/weir/weir.yaml: ok") || !strings.Contains(got, "/usr/sbin/nologin") || !strings.Contains(got, "\n600\n") || !strings.Contains(got, "complete -F _weir weir") {
		t.Errorf("after the installation: %s", got)
	}
	if s.starts != 1 {
		t.Errorf("it was started %d times", s.starts)
	}
	for _, want := range []int{200, 429} {
		if got, err := s.status(http.DefaultClient, 99_999_999); got != want {
			t.Errorf("the first requests are answered %d (%v), want %d", got, err, want)
		}
	}

	edited := strings.Replace(r.run("cat /etc/weir/weir.yaml"), "upstreams:", "# edited\nupstreams:", 1)
	r.write("etc/weir/weir.yaml", edited, 0o644)
	stop := s.load()
	r.run("dpkg -i " + next)
	if got := stop(); s.starts != 2 || got < 100 {
		t.Errorf("it was started %d times, under a load of %d requests", s.starts, got)
	} else {
		t.Logf("upgraded under %d requests, of which none was lost", got)
	}
	if got := r.run("weir version; cat /etc/weir/weir.yaml"); !strings.Contains(got, "weir v0.1.1 ") || !strings.Contains(got, "# edited\n") {
		t.Errorf("after the upgrade: %s", got)
	}

	r.run("dpkg -r weir")
	r.has(false, "usr/bin/weir", "lib/systemd/system/weir.service")
	r.has(true, "etc/weir/weir.yaml")
	if s.weir != nil {
		t.Error("it still runs after it was removed")
	}
	r.run("mkdir -p /var/lib/private/weir && dpkg -P weir")
	r.has(false, "etc/weir/weir.yaml", "etc/weir/environment", "var/lib/private/weir", "etc/systemd/system/multi-user.target.wants/weir.service", "etc/systemd/system/weir.service")
}

func TestInstall_Rpm(t *testing.T) {
	r := newRoot(t)
	rpm := func(args ...string) {
		r.host("rpm", append([]string{"--root", r.dir, "--nodeps"}, args...)...)
	}
	r.host("rpmdb", "--root", r.dir, "--initdb")
	first, next := r.copied(cache+"/release/1/weir-0.1.0-1.x86_64.rpm"), r.copied(cache+"/release/next/weir-0.1.1-1.x86_64.rpm")
	rpm("-i", filepath.Join(r.dir, first))
	r.has(true, "usr/lib/systemd/system/weir.socket", "usr/share/licenses/weir/LICENSES", "usr/share/zsh/site-functions/_weir")
	if got := r.run("weir version; weir check /etc/weir/weir.yaml; getent passwd weir"); !strings.Contains(got, "weir v0.1.0 ") || !strings.Contains(got, ": ok") || !strings.Contains(got, "/usr/sbin/nologin") {
		t.Errorf("after the installation: %s", got)
	}
	r.run("echo '# edited' >>/etc/weir/weir.yaml")
	rpm("-U", filepath.Join(r.dir, next))
	if got := r.run("weir version; cat /etc/weir/weir.yaml"); !strings.Contains(got, "weir v0.1.1 ") || !strings.Contains(got, "# edited\n") {
		t.Errorf("after the upgrade: %s", got)
	}
	rpm("-e", "weir")
	r.has(false, "usr/bin/weir", "usr/lib/systemd/system/weir.service")
	r.has(true, "etc/weir/weir.yaml.rpmsave")
}
