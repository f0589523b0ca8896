package form

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// errNotFile reports a pipe, a socket or a device, which may not end and cannot be read
// again.
var errNotFile = errors.New("is not a regular file")

// ReadFile reads a regular file, of which it returns at most most+1 bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	return data, Pathless(err)
}

// OpenFile opens a regular file. It does not block on a pipe.
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Pathless(err)
	}
	return f, Regular(f)
}

// Regular closes f and describes it, unless it is a regular file.
func Regular(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		err = Pathless(err)
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = errNotFile
	}
	if err != nil {
		f.Close()
	}
	return err
}

// Pathless returns err without the path, which is reported separately.
func Pathless(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
