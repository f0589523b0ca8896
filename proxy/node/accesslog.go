package node

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
)

// An accessLog is the destination of the access log: the process log, or a file.
type accessLog struct {
	proxy.AccessWriter
	file *logFile // nil if lines go to the process log
}

// openAccessLog opens the configured destination.
func (n *Node) openAccessLog(o Options) error {
	path := o.Config.AccessLog.File
	if path == "" {
		n.access = &accessLog{proxy.AccessWriter{Log: o.Log.Logger, Lines: o.Log.queue}, nil}
		watchDropped(n.registry, o.Log.queue)
		return nil
	}
	file, err := openLogFile(path)
	if err != nil {
		return fmt.Errorf("access_log.file cannot be written: %w; name a file in a directory that weir may write to", err)
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

// reopenOnSignals reopens the access log file at each signal, until ctx is done. Lines logged before may
// still be in the renamed file.
func (n *Node) reopenOnSignals(ctx context.Context, signals <-chan os.Signal) {
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

// logMode is the mode of a new log file: it is not readable for users outside Weir's group.
const logMode = 0o640

// A logFile is an append-only file that can be reopened after it was renamed.
type logFile struct {
	path string

	mu sync.Mutex // guards what follows; held while writing, so that reopen does not close the file during a write
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
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, logMode) // #nosec G302 -- Weir's group may read it
}

// Write implements io.Writer.
func (l *logFile) Write(lines []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(lines)
}

// reopen opens the file at the path again for all further lines. If that fails, nothing changes.
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

// Close closes the file. Later writes return an error.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
