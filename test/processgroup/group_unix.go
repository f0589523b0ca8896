//go:build unix

// Package processgroup ends a process together with those that it has started.
package processgroup

import (
	"os/exec"
	"syscall"
)

// Lead makes cmd, which has not been started yet, the leader of a process group.
func Lead(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Signal sends a signal to the group of cmd, which may have ended.
func Signal(cmd *exec.Cmd, s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
