# Every step that does something stands in scripts/image.sh, so that `make image-check` can run the very same steps
# in a chroot where there is no Docker engine.

FROM debian:trixie-slim AS build
COPY . /src
RUN /src/scripts/image.sh build /src /opt/arbiter

FROM debian:trixie-slim
COPY scripts/image.sh /tmp/image.sh
RUN /tmp/image.sh runtime && rm /tmp/image.sh
COPY --from=build /opt/arbiter /opt/arbiter

ENV PATH=/opt/arbiter/bin:/usr/bin:/bin \
    HOST=0.0.0.0 PORT=8080 \
    ARBITER_CONFIG=/config/arbiter.yaml ARBITER_DATA_DIR=/data \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
VOLUME ["/config", "/data"]
EXPOSE 8080
USER 10001:10001
WORKDIR /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/opt/arbiter/bin/arbiter-health"]
ENTRYPOINT ["arbiter"]
CMD ["serve"]
