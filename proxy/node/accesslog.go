package node

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
)

// An accessLog is where lines of requests go: the log of all else, or a file.
type accessLog struct {
	proxy.AccessWriter
	file *logFile // nil: the log of all else
}

// openAccessLog opens what the configuration says.
func (n *Node) openAccessLog(o Options) error {
	path := o.Config.AccessLog.File
	if path == "" {
		n.access = &accessLog{proxy.AccessWriter{Log: o.Log.Logger, Lines: o.Log.queue}, nil}
		watchDropped(n.registry, o.Log.queue)
		return nil
	}
	file, err := openLogFile(path)
	if err != nil {
		return fmt.Errorf("access_log.file cannot be written: %w; name a file in a folder that weir may write to", err)
	}
	queue := newLogQueue(file)
	n.access = &accessLog{proxy.AccessWriter{Log: zerolog.New(queue).Level(zerolog.InfoLevel).Hook(newClock()), Lines: queue}, file}
	watchDropped(n.registry, o.Log.queue, queue)
	n.closers.push("access log", func(context.Context) error {
		queue.Close()
		return file.Close()
	})
	return nil
}

// reopen opens the access log again when the process is told to. What was logged
// before is in the file that was renamed, or in the new one.
func (n *Node) reopen(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			n.reopenOnce()
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) reopenOnce() {
	if n.access.file == nil {
		n.log.Info().Msg("no access_log.file to reopen")
		return
	}
	path := n.access.file.path
	if err := n.access.file.reopen(); err != nil {
		n.log.Error().Err(err).Str("file", path).Msg("cannot reopen access log; still writing to the old file")
		return
	}
	n.log.Info().Str("file", path).Msg("access log reopened")
}

// logMode is how a log file is made: others than Weir's group read nothing of it.
const logMode = 0o640

// A logFile is a file that lines are added to, and that can be opened again after it
// was renamed.
type logFile struct {
	path string

	mu sync.Mutex // guards what follows; held while writing: the file is not closed under a line
	f  *os.File
}

func openLogFile(path string) (*logFile, error) {
	f, err := openToAppend(path)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, f: f}, nil
}

func openToAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, logMode)
}

// Write implements io.Writer.
func (l *logFile) Write(lines []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(lines)
}

// reopen has what is written from now on go to what is at the path now. If that cannot
// be opened, nothing changes.
func (l *logFile) reopen() error {
	next, err := openToAppend(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	before := l.f
	l.f = next
	l.mu.Unlock()
	return before.Close()
}

// Close ends it. Who writes afterwards is told so.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
