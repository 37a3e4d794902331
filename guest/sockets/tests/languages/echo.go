// SPDX-License-Identifier: Apache-2.0 OR MIT

// echo server PORT | echo client ADDRESS PORT BYTES: the client prints what it sees of the connection.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "server" {
		listener, err := net.Listen("tcp", ":"+os.Args[2])
		check(err)
		for {
			conn, err := listener.Accept()
			check(err)
			go func() {
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}
	conn, err := net.Dial("tcp", os.Args[2]+":"+os.Args[3])
	check(err)
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	data := bytes.Repeat([]byte{7}, count)
	go conn.Write(data)
	back := make([]byte, count)
	_, err = io.ReadFull(conn, back)
	check(err)
	if !bytes.Equal(back, data) {
		os.Exit(1)
	}
	fmt.Println(strings.Replace(conn.RemoteAddr().String(), ":", " ", 1))
}
