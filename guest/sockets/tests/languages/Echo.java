// SPDX-License-Identifier: Apache-2.0 OR MIT

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/** Echo server PORT | Echo client ADDRESS PORT BYTES: NIO; the client prints what it sees of the connection. */
public class Echo {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("server")) {
            serve(Integer.parseInt(words[1]));
        } else {
            run(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
        }
    }

    static void serve(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress(port));
        server.configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel channel = server.accept();
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ);
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                buffer.clear();
                if (channel.read(buffer) < 0) {
                    channel.close();
                    continue;
                }
                buffer.flip();
                while (buffer.hasRemaining()) {
                    channel.write(buffer);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void run(String address, int port, int count) throws Exception {
        Selector selector = Selector.open();
        SocketChannel channel = SocketChannel.open();
        channel.configureBlocking(false);
        channel.register(selector, SelectionKey.OP_CONNECT);
        channel.connect(new InetSocketAddress(address, port));
        selector.select();
        channel.finishConnect();
        selector.selectedKeys().clear();
        channel.keyFor(selector).interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        byte[] data = new byte[count];
        for (int number = 0; number < count; number++) {
            data[number] = (byte) (number * 7 % 251);
        }
        ByteBuffer out = ByteBuffer.wrap(data);
        ByteBuffer back = ByteBuffer.allocate(count);
        while (back.hasRemaining()) {
            selector.select();
            selector.selectedKeys().clear();
            channel.write(out);
            channel.read(back);
            if (!out.hasRemaining()) {
                channel.keyFor(selector).interestOps(SelectionKey.OP_READ);
            }
        }
        if (!java.util.Arrays.equals(data, back.array())) {
            System.exit(1);
        }
        InetSocketAddress peer = (InetSocketAddress) channel.getRemoteAddress();
        System.out.println(peer.getAddress().getHostAddress() + " " + peer.getPort());
    }
}
